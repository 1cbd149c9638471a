"""What axe-core finds wrong with the page as it stands now, good manners included."""

from __future__ import annotations

from axe_playwright_python.base import AXE_SCRIPT

LOAD: str = AXE_SCRIPT + "\nundefined"
"""To be evaluated first: a script tag would be refused by the page's own policy."""
FINDINGS = """async () => {
    const roots = [document, ...[...document.querySelectorAll("*")].flatMap((one) => one.shadowRoot ?? [])];
    const moves = roots.flatMap((root) => root.getAnimations());
    const ending = moves.filter((one) => one.effect.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(ending.map((one) => one.finished));
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    const words = (rule, node) => `${rule.id}: ${node.target.flat().join(" ")}`;
    return violations.flatMap((rule) => rule.nodes.map((node) => words(rule, node)));
}"""
"""What fades has no contrast of its own yet: all that comes to an end is waited for."""
