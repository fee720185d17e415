/** Whether blocks are loaded or computed again goes by the delay of all, not of the one request alone. */

import { describe, expect, it } from 'vitest';
import { isLoadBetter, type LoadChoice } from '../../../src/runtime/planning/loadOrRecompute.ts';

const alone: LoadChoice = {
  computeUs: 1000,
  loadUs: 1200,
  linkUs: 1200,
  slackUs: 0,
  roomShare: 0.05,
  waiting: 0,
  loading: 0,
};
const better = (fields: Partial<LoadChoice>): boolean => isLoadBetter({ ...alone, ...fields });

describe('loading among others', () => {
  it('is for a request that is alone what is there first', () => {
    expect(better({})).toBe(false);
    expect(better({ loadUs: 1000, linkUs: 1000 })).toBe(true);
    expect(better({ slackUs: 200 })).toBe(true);
  });

  it('spares the engine where others wait for it, or will when their loads are there', () => {
    expect(better({ waiting: 2 })).toBe(true);
    expect(better({ linkUs: 800 })).toBe(false);
    expect(better({ linkUs: 800, loading: 2 })).toBe(true);
  });

  it('sees the queue of its link, and who would wait for its bytes there', () => {
    expect(better({ waiting: 1, loadUs: 5000 })).toBe(false);
    expect(better({ loading: 1 })).toBe(false);
    expect(better({ waiting: 1, loading: 1, loadUs: 3000, linkUs: 3000 })).toBe(false);
    expect(better({ waiting: 8, loading: 1, loadUs: 3000, linkUs: 3000 })).toBe(true);
  });

  it('sees who waits for the room in which it would lie', () => {
    expect(better({ waiting: 20, loadUs: 9000, linkUs: 1000, roomShare: 0.01 })).toBe(true);
    expect(better({ waiting: 20, loadUs: 9000, linkUs: 1000, roomShare: 0.2 })).toBe(false);
  });

  it('never prefers a load because it takes longer, or because the engine computes faster', () => {
    for (const waiting of [0, 1, 3, 7, 60]) {
      for (const loading of [0, 2]) {
        const crowd = { waiting, loading };
        const answers = [200, 800, 3000, 20_000, 200_000].map((us) =>
          better({ ...crowd, loadUs: us, linkUs: us }),
        );
        expect(answers).toEqual([...answers].sort((a, b) => Number(b) - Number(a)));
        const byCompute = [10, 100, 1000, 10_000].map((computeUs) => better({ ...crowd, computeUs }));
        expect(byCompute).toEqual([...byCompute].sort((a, b) => Number(a) - Number(b)));
      }
    }
  });
});
