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

it.each([
  ['crossing', 'On the hidden suite it beats every preset in 1 of 1 settings.'],
  [
    'preset',
    'The winner is itself a policy that the search began with, routing/lor. On the hidden suite it beats every other one in 1 of 1 settings.',
  ],
])('a winner of the origin %s is told as one', (origin, verdict) => {
  const judged = { name: 'routing/lor', id: 'w', hidden: 0.1, settings: { chat: 0.1 }, cases: {} };
  const report: Parameters<typeof reportText>[0] = {
    ...{ generations: 2, evaluations: 40, finalists: [], suites: {}, history: [] },
    winner: { ...judged, train: 0.05, validation: 0.04, origin, generation: 0 },
    presets: [{ ...judged, name: 'routing/llq', id: 'p', hidden: 0, settings: { chat: 0 } }],
    settings: [{ setting: 'chat', winner: 0.1, bestPreset: 'routing/llq', bestPresetScore: 0 }],
  };
  expect(reportText(report, 1)).toContain(`${verdict}\n`);
});
