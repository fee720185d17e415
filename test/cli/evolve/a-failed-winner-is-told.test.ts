import { expect, it } from 'vitest';
import { reportText } from '../../../src/cli/evolve/report.ts';

it('a winner that fails on the hidden suite is told to have failed', () => {
  const error = 'step_limit: it ran more than 1000 steps.';
  const judged = { name: 'w', id: 'w', hidden: -100, settings: {}, cases: {} };
  const report: Parameters<typeof reportText>[0] = {
    ...{ generations: 2, evaluations: 40, finalists: [], suites: {}, history: [], settings: [] },
    winner: { ...judged, train: 0.05, validation: 0.04, origin: 'cma', generation: 1 },
    presets: [{ ...judged, name: 'lor', id: 'lor', hidden: 0.1 }],
  };
  const failed = reportText({ ...report, winner: { ...report.winner, error } }, 1);
  expect(failed).toContain(`The winner failed on the hidden suite: ${error}`);
  expect(failed).not.toContain('No other policy was judged');
  expect(reportText({ ...report, presets: [] }, 1)).toContain('No other policy was judged beside it.');
});
