import { expect, it } from 'vitest';
import type { BlockLife } from '../../src/embed/explanation.ts';
import { lifeText } from '../../src/observe/explain/explanationText.ts';

/** The life of a block that `uses` sequences used, a second apart. */
function lifeOf(uses: number): BlockLife {
  const events = Array.from({ length: uses }, (_, i) => ({
    ...{ atUs: 1e6 * i, what: 'used', tier: 'hbm', sequence: i, request: null, by: 'open' },
  }));
  return { key: '0'.repeat(32), tier: 'hbm', events } as unknown as BlockLife;
}

it('a block of many uses is told by its first and its last ones, and how many lie between', () => {
  const text = lifeText(lifeOf(1000));
  expect(text).toContain('1,000 events, it lies in hbm at the end');
  expect(text.match(/for sequence/g)).toHaveLength(80);
  expect(text).toContain('  ... 920 more events: the JSON of this answer has them');
  for (const told of [0, 39, 960, 999]) expect(text).toMatch(new RegExp(`for sequence ${told}\\n`));
  for (const left of [40, 959]) expect(text).not.toMatch(new RegExp(`for sequence ${left}\\n`));
});

it('a short life is told whole', () => {
  const text = lifeText(lifeOf(80));
  expect(text.match(/for sequence/g)).toHaveLength(80);
  expect(text).not.toContain('more events');
});
