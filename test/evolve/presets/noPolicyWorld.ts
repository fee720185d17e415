/** For slots whose templates are plain configuration, and draw nothing. */

import type { PolicyWorld } from '../../../src/sim/control/policy.ts';

export const noPolicyWorld: PolicyWorld = {
  blockTokens: 4,
  maxSequences: 16,
  stream: (name) => {
    throw new Error(`it asked for the stream ${name}`);
  },
};
