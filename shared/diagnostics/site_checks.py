"""What `evertalk doctor` says of sites: whose settings cannot be used, and where nobody can sign in."""

from __future__ import annotations

from shared.adapters.postgres.people.visitors import SiteRow
from shared.bootstrap.stores import open_stores
from shared.config.sites import BadSiteConfig, read_site_config
from shared.diagnostics.findings import Finding


async def check_sites(database_url: str) -> Finding:
    """Sites whose rows cannot be used let nobody in, and say so only in the log."""
    async with open_stores(database_url, size=1) as stores:
        sites = await stores.visitors.sites()
    problems = [
        f"site {name}: {problem}" for name, row in sorted(sites.items()) for problem in _find_problem(row)
    ]
    if not problems:
        return Finding(level="ok", what=f"{len(sites)} site{'' if len(sites) == 1 else 's'} can be used")
    what = "\n      ".join(["sites have settings that cannot be used:", *problems])
    return Finding(level="warn", what=what, advice="./evertalk site edit NAME changes a site.")


def _find_problem(site: SiteRow) -> tuple[str, ...]:
    try:
        config = read_site_config(site.config)
    except BadSiteConfig as error:
        return (*error.problems, "Until that is corrected, nobody is let in there.")
    if config.verified != "off" and not site.secrets:
        return (f"nobody can sign in yet: ./evertalk site secret {site.name} add makes a secret",)
    return ()
