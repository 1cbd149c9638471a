"""Contacts: persons and groups have one name in tables, columns and scopes of spending."""

from __future__ import annotations

from alembic import op

from migrations.renames import rename, reverse

revision = "0095"
down_revision = "0094"
branch_labels = None
depends_on = None

NAMES = {
    "parties": "contacts",
    "parties_by_name": "contacts_by_name",
    "parties_by_pieces": "contacts_by_pieces",
    "parties_id_seq": "contacts_id_seq",
    "parties_merged": "contacts_merged",
    "parties_merged_into_fkey": "contacts_merged_into_fkey",
    "parties_on_hold": "contacts_on_hold",
    "parties_pkey": "contacts_pkey",
    "parties_public_id_key": "contacts_public_id_key",
    "parties_seen_somewhere": "contacts_seen_somewhere",
    "party_links": "contact_links",
    "party_links_archived_session_id_fkey": "contact_links_archived_session_id_fkey",
    "party_links_id_seq": "contact_links_id_seq",
    "party_links_joined_party_id_fkey": "contact_links_joined_contact_id_fkey",
    "party_links_kept_party_id_fkey": "contact_links_kept_contact_id_fkey",
    "party_links_kept_session_id_fkey": "contact_links_kept_session_id_fkey",
    "party_links_of_kept": "contact_links_of_kept",
    "party_links_pkey": "contact_links_pkey",
    "party_id": "contact_id",
    "party_hash": "contact_hash",
    "party_link_id": "contact_link_id",
    "joined_party_id": "joined_contact_id",
    "kept_party_id": "kept_contact_id",
    "held_parties": "held_contacts",
    "party_family": "contact_family",
    "party_is_joined_once": "contact_is_joined_once",
    "party_kind": "contact_kind",
    "party_link_joins_two": "contact_link_joins_two",
    "party_not_merged_into_itself": "contact_not_merged_into_itself",
    "addresses_by_party": "addresses_by_contact",
    "addresses_party_id_fkey": "addresses_contact_id_fkey",
    "due_tidyings_by_party": "due_tidyings_by_contact",
    "import_file_party": "import_file_contact",
    "import_party": "import_contact",
    "link_codes_of_party": "link_codes_of_contact",
    "link_guesses_party_id_fkey": "link_guesses_contact_id_fkey",
    "note_change_party": "note_change_contact",
    "note_changes_by_party": "note_changes_by_contact",
    "notes_of_party": "notes_of_contact",
    "notes_of_party_link": "notes_of_contact_link",
    "notes_party_id_fkey": "notes_contact_id_fkey",
    "notes_party_link_id_fkey": "notes_contact_link_id_fkey",
    "one_time_codes_party_id_fkey": "one_time_codes_contact_id_fkey",
    "reminders_of_party": "reminders_of_contact",
    "reminders_party_id_fkey": "reminders_contact_id_fkey",
    "sessions_by_party": "sessions_by_contact",
    "sessions_party_id_fkey": "sessions_contact_id_fkey",
}


def upgrade() -> None:
    rename(NAMES)
    _rename_scopes("party", "contact")
    _rename_work("parties", "contacts")


def downgrade() -> None:
    rename(reverse(NAMES))
    _rename_scopes("contact", "party")
    _rename_work("contacts", "parties")


def _rename_scopes(old: str, new: str) -> None:
    """Rename a scope of spending in sums, reservations, slices, refused turns and alerts."""
    op.execute(
        f"UPDATE spend_days SET scope = '{new}' || substr(scope, {len(old) + 1}) WHERE scope LIKE '{old}:%'"
    )
    for table in ("reservations", "spend_slices"):
        op.execute(
            f"""UPDATE {table} SET scopes = ARRAY(
                  SELECT regexp_replace(one, '^{old}:', '{new}:') FROM unnest(scopes) AS one ORDER BY 1)
                WHERE array_to_string(scopes, ' ') LIKE '%{old}:%'"""
        )
    op.execute("ALTER TABLE turns DROP CONSTRAINT turn_scope_refused")
    op.execute(f"UPDATE turns SET refused_scope = '{new}' WHERE refused_scope = '{old}'")
    op.execute(
        f"""ALTER TABLE turns ADD CONSTRAINT turn_scope_refused
              CHECK (refused_scope IS NULL
                     OR refused_scope IN ('{new}', 'session', 'network', 'visitors', 'total')
                        AND state IN ('refused', 'answered')
                        AND error_code IS NOT NULL AND error_code IN ('cap_reached', 'hour_cap_reached'))"""
    )
    op.execute(
        f"""UPDATE alerts SET key = '{new}' || substr(key, {len(old) + 1}),
                   detail = jsonb_set(detail, '{{source}}', to_jsonb('{new}' || substr(key, {len(old) + 1})))
             WHERE kind = 'spend_source' AND key LIKE '{old}:%'"""
    )


def _rename_work(old: str, new: str) -> None:
    """Rename a key in what a running erasure still has to do."""
    op.execute(
        f"""UPDATE erasures SET work = work - '{old}' || jsonb_build_object('{new}', work -> '{old}')
             WHERE state = 'running' AND work ? '{old}'"""
    )
