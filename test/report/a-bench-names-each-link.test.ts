import { expect, it } from 'vitest';
import type { Report } from '../../src/observe/report/model.ts';
import { benched } from './results.ts';

const links = [
  'GPU memory to host memory',
  'host memory to GPU memory',
  'GPU memory and host memory, both ways',
];

it('each link has a chart by the size of the unit, also one on which nothing is verified', () => {
  const { sections, figures } = benched();
  const charts = sections.filter(({ kind }) => kind === 'lines').map(({ title }) => title);
  expect(charts).toEqual(links.map((link) => `${link} by size of the unit`));
  expect(figures.slice(0, 3).map(({ name }) => name)).toEqual(links);
});

function lanesOf({ sections }: Report): unknown {
  const timeline = sections.find(({ kind }) => kind === 'timeline');
  if (timeline?.kind !== 'timeline') throw new Error('a bench has a timeline');
  return timeline.lanes.map(({ name, series }) => [name, series.map((each) => each.name)]);
}

it('links between the same two tiers share a lane, which names the faster one first', () => {
  expect(lanesOf(benched())).toEqual([['rate of tierkv, GPU memory and host memory', links.slice(0, 2)]]);
  expect(lanesOf(benched('ddrToNvme', 'nvmeToDdr'))).toEqual([
    ['rate of tierkv, host memory and disk', ['host memory to disk', 'disk to host memory']],
  ]);
});
