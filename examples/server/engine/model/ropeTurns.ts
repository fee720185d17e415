/** Cosine and sine of every position and pair of dimensions, computed in float64: [position][i][cos, sin]. */

import type { ModelConfig } from '../checkpoint/index.ts';

export function ropeTurns(config: ModelConfig, positions: number): Float32Array<ArrayBuffer> {
  const half = config.headDim / 2;
  const turns = new Float32Array(positions * half * 2);
  for (let i = 0; i < half; i++) {
    const frequency = config.ropeBase ** (-i / half);
    for (let position = 0; position < positions; position++) {
      const at = (position * half + i) * 2;
      turns[at] = Math.cos(position * frequency);
      turns[at + 1] = Math.sin(position * frequency);
    }
  }
  return turns;
}
