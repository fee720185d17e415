import { PassThrough } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { startProgressBar } from '../../../src/io/printing/progress.ts';

function terminal(isTTY: boolean): { stream: PassThrough & { isTTY: boolean }; text: () => string } {
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 200 });
  const seen: string[] = [];
  stream.on('data', (chunk: Buffer) => seen.push(chunk.toString()));
  return { stream, text: () => seen.join('') };
}

it('writes nothing to a stream other than a terminal', async () => {
  const { stream, text } = terminal(false);
  {
    using bar = startProgressBar('requests', stream);
    for (let i = 0; i <= 10; i++) bar.update({ share: i / 10, done: i });
    await sleep(150);
  }
  expect(text()).toBe('');
});

it('notices reach a stream other than a terminal as plain lines', () => {
  const { stream, text } = terminal(false);
  using bar = startProgressBar('requests', stream);
  bar.say('software adapter');
  expect(text()).toBe('software adapter\n');
});

it('shows share, count, rate, time left and note on a terminal, and clears the line at the end', async () => {
  const { stream, text } = terminal(true);
  let nowMs = 1000;
  const bar = startProgressBar('requests', stream, { now: () => nowMs, every: () => () => {} });
  nowMs += 2000;
  bar.update({ share: 0.25, done: 5000, note: '1.5 GB/s' });
  while (!text().includes('25%')) await sleep(10); // the bar itself is drawn by a timer
  expect(text()).toMatch(/25% \| 5,000 requests \| 2,500 a second \| 6\.0+ s left \| 1\.5 GB\/s/);
  bar[Symbol.dispose]();
  const afterStop = text().length;
  await sleep(250);
  expect(text().length).toBe(afterStop);
});
