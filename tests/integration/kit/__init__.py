"""Tests of the kit itself: a fake that is too kind would prove nothing."""
