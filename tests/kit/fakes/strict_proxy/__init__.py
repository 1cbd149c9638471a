"""A fake of a company's or a mobile network's proxy that blocks, delays or breaks connections."""
