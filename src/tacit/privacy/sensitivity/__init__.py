"""How far neighbours may lie apart behind stages without noise."""
