import { expect, it } from 'vitest';
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

it('links between the same two tiers share a lane', () => {
  const timeline = benched().sections.find(({ kind }) => kind === 'timeline');
  if (timeline?.kind !== 'timeline') throw new Error('a bench has a timeline');
  expect(timeline.lanes.map(({ name, series }) => [name, series.map((each) => each.name)])).toEqual([
    ['rate of tierkv, GPU memory and host memory', links.slice(0, 2)],
  ]);
});
