"""Sends alerts by mail and to webhooks, and notifications to browsers.

What an alert says and whom it concerns is decided in `core/ops/alerts`; `services/admin/alert_sender`
sends each once.
"""
