"""Room for critical add-ons: who fits where, and who has to move. No I/O."""
