"""Alerts of all states, as SQL."""

from __future__ import annotations

SEED = """
INSERT INTO alerts (kind, key, detail, opened_at) VALUES
  ('spend_80', 'total', '{"used_micro": 4100000, "cap_micro": 5000000}', now() - interval '40 min'),
  ('handover_waiting', 'x', '{"session": "11111111-2222-3333-4444-555555555555", "minutes": 5}',
   now() - interval '6 min');
INSERT INTO alerts (kind, key, detail, opened_at, ended_at) VALUES
  ('breaker_open', 'api.anthropic.com', '{"provider": "api.anthropic.com"}', now() - interval '1 day',
   now() - interval '23 h'),
  ('disk_low', 'data', '{"free_bytes": 1073741824, "total_bytes": 107374182400}', now() - interval '3 days',
   now() - interval '2 days');
INSERT INTO alert_sends (alert_id, target, phase, state, error, attempt, due_at, ended_at)
SELECT id, target, phase, state, error, 1, opened_at, opened_at FROM alerts, (VALUES
  ('webhook', 'opened', 'sent', ''), ('telegram:-1001234567890', 'opened', 'failed', 'chat_gone'),
  ('email', 'opened', 'uncertain', 'cut_off')) AS s(target, phase, state, error);
INSERT INTO alert_sends (alert_id, target, phase, state, attempt, ended_at)
SELECT id, 'webhook', 'ended', 'sent', 1, ended_at FROM alerts WHERE ended_at IS NOT NULL
"""
