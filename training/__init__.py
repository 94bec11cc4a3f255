"""How the voice that ships was made: data, codec, dual-AR, export. See README.md here."""
