"""Reservations in all scopes that have a cap, or in none, and whether a call may have been sent."""

from __future__ import annotations

from alembic import op

revision = "0066"
down_revision = "0065"
branch_labels = None
depends_on = None

IS_WHOLE = """CREATE FUNCTION is_whole(held bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF held <> wanted AND held > 0 THEN
    RAISE EXCEPTION 'a rival took what was left in one of several scopes'
      USING ERRCODE = 'serialization_failure';
  END IF;
  RETURN held = wanted;
END $$"""
"""Undoes the whole statement where only some scopes agreed; the caller tries again."""

CLOSE_SLICE = """CREATE FUNCTION close_slice(slice bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  one spend_slices;
  still_held bigint;
  spent bigint;
BEGIN
  -- Waits for claims that are being made from the slice; those that wait for us find it closed.
  SELECT * INTO one FROM spend_slices WHERE id = slice AND closed_at IS NULL FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  WITH moved AS (
    UPDATE reservations r SET slice_id = NULL, scopes = r.scopes || one.scopes
     WHERE r.slice_id = slice AND r.id > one.after_reservation AND r.state = 'held' RETURNING amount_micro
  ) SELECT coalesce(sum(amount_micro), 0) INTO still_held FROM moved;
  SELECT coalesce(sum(r.settled_micro), 0) INTO spent FROM reservations r
   WHERE r.slice_id = slice AND r.id > one.after_reservation;
  UPDATE spend_slices SET closed_at = now(), spent_micro = spent WHERE id = slice;
  PERFORM FROM spend_days d WHERE d.day = one.day AND d.scope = ANY (one.scopes)
    ORDER BY d.scope FOR NO KEY UPDATE;
  UPDATE spend_days d SET reserved_micro = d.reserved_micro - one.granted_micro + still_held,
         spent_micro = d.spent_micro + spent
   WHERE d.day = one.day AND d.scope = ANY (one.scopes);
  RETURN true;
END $$"""
"""Each statement of it sees what was committed before that statement, and the shared row is locked last."""


def upgrade() -> None:
    # How many scopes the amount was asked of; null in rows of earlier versions and in sums that were carried.
    op.execute("ALTER TABLE reservations ADD COLUMN asked_scopes SMALLINT")
    # False from a repeated claim until its first call: what dies before that has cost nothing.
    op.execute("ALTER TABLE reservations ADD COLUMN may_be_sent BOOLEAN DEFAULT true NOT NULL")
    op.execute(IS_WHOLE)
    op.execute(CLOSE_SLICE)


def downgrade() -> None:
    op.execute("DROP FUNCTION close_slice(bigint)")
    op.execute("DROP FUNCTION is_whole(bigint, bigint)")
    op.execute("ALTER TABLE reservations DROP COLUMN may_be_sent")
    op.execute("ALTER TABLE reservations DROP COLUMN asked_scopes")
