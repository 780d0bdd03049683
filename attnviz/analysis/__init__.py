"""Pure functions of a trace: what the heads do. Each cites its source and says what its score does not show."""
