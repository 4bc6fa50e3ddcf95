"""What must hold of an allocator: numbered rules over states and steps, alike on all subjects."""
