
invariant "a pop finds a free block"
  somebody_pops() -> free_blocks() > 0;
