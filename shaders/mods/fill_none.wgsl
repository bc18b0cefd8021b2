// No score is filled with a finite number: what is skipped never counts.
const HAS_FILL: bool = false;
const SETTLED_ABOVE: f32 = 0.0;
