import { expect, it } from 'vitest';
import { searched } from './results.ts';

it('a search with time for some of the presets does not speak of every preset', () => {
  const short = searched('--minutes 2 left room for 2 of 57 first policies');
  expect(short.answer).toContain('ahead of the best of the presets judged (2), lor,');
  expect(short.sections[0].title).toBe(
    'The winner beside the presets that were judged, on workloads that were never seen',
  );
  expect(short.limits[0]).toBe(
    '--minutes 2 left room for 2 of 57 first policies. More time judges the others too.',
  );
  const whole = searched();
  expect(whole.answer).toContain('ahead of the best preset, lor,');
  expect(whole.sections[0].title).toContain('beside every preset');
  expect(whole.limits.join()).not.toContain('left room');
});

it('a winner that fails on workloads that it never saw is told to have failed', () => {
  const error = 'step_limit: it ran more than 1000 steps.';
  const page = searched(undefined, error);
  expect(page.answer).toBe(`No: the winner failed on workloads that the search never saw. ${error}`);
  expect(page.verdict).toBe('no');
});

it('a winner that is itself a preset beats no preset', () => {
  const page = searched(undefined, undefined, 'preset');
  expect(page.answer).toMatch(
    /^No: the winner is itself a policy that the search began with, the winner\. It is /,
  );
  expect(page.answer).toContain('ahead of the best other preset, lor,');
  expect(page.verdict).toBe('no');
  expect(searched().verdict).toBe('yes');
});
