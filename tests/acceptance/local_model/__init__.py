"""A real model, small and independent of us, behind two APIs: what no fake of ours can prove."""
