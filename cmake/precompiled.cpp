// Empty: the target that owns the precompiled header has to compile something.
