import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { JobId } from '../../../src/runtime/tables/jobTable.ts';
import { Deadlines } from '../../../src/runtime/tables/jobTable.ts';

it('gives due jobs out in the order of their deadlines, whichever jobs have ended meanwhile', () => {
  const step = fc.oneof(
    fc.record({ what: fc.constant('add'), us: fc.nat(1000) }),
    fc.record({ what: fc.constant('end'), us: fc.nat(100) }),
    fc.record({ what: fc.constant('take'), us: fc.nat(1000) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 1500 }), (steps) => {
      const live = new Map<number, number>();
      const deadlines = new Deadlines((job) => live.has(job));
      let made = 0;
      for (const { what, us } of steps) {
        if (what === 'add') {
          live.set(++made, us);
          deadlines.add(made as JobId, us);
        } else if (what === 'end') {
          const [job] = [...live.keys()].slice(us % Math.max(1, live.size));
          if (job !== undefined) live.delete(job);
        } else {
          const due = [...live.values()].filter((dueUs) => dueUs <= us);
          const job = deadlines.takeDue(us);
          if (due.length === 0) expect(job).toBe(0);
          else {
            expect(live.get(job)).toBe(Math.min(...due));
            live.delete(job);
          }
        }
        expect(deadlines.nextUs).toBe(
          live.size === 0 ? Number.POSITIVE_INFINITY : Math.min(...live.values()),
        );
      }
    }),
  );
});
