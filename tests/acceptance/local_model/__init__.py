"""A real model, small and independent of us, behind the Messages API: what no fake of ours can prove."""
