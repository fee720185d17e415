/** Three questions that people ask have a command each in the guide. Each is run here as it stands there, at a lower rate, and answers. */

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { main } from '../../command.ts';

const guide = readFileSync(new URL('../../../docs/guide/plan.md', import.meta.url), 'utf8');
const [, section] =
  /^## Three questions$(.*?)^## /ms.exec(guide) ?? expect.fail('the guide has no such section');
const commands = [...section.matchAll(/^ {4}npx tierkv (.*)$/gm)].map(([, words]) => words);

/** What a command of the guide prints. At 20 requests a second conversations need some ten thousand of them. */
function answered(words: string, ...more: string[]): string {
  expect(words).toContain('--rate 20');
  const slower = words.replace('--rate 20', '--rate 1').replace(/--num-requests \d+/, '--num-requests 800');
  const args = [main, ...slower.split(' '), ...more];
  return execFileSync(process.execPath, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
}

const small =
  '--num-requests 700 --gpu H100 --tp 1 --max-gpus 1 --seeds 0 --roles shared --budget 3600'.split(' ');

it('has three', () => expect(commands).toHaveLength(3));

it('names the cheapest deployment at the rate that was asked for', () => {
  const text = answered(commands[0], ...small);
  expect(text).toMatch(/^1 GPU: 1 instance x 1 H100/);
  expect(Number(/requests a second +│ +([\d.]+)/.exec(text)?.[1])).toBeGreaterThan(0.9);
});

it('says what doubling host memory brings', () => {
  const text = answered(commands[1], ...small);
  const [, table] = /what each size brings:\n(.*?└.*?┘)/s.exec(text) ?? expect.fail('no table');
  expect(table).toMatch(/blocks found.*ttft_mean.*ttft_p99.*USD\/h/);
  expect(table).toMatch(/128 GiB │ +none │ +[\d.]+ % │ .* ms │ .* 3\.01 │/);
  expect(table).toMatch(/256 GiB │ +none │ +[\d.]+ % │ .* ms │ .* 3\.52 │/);
});

it('says what a slow disk costs', () => {
  const text = answered(commands[2]);
  const ttft = (name: string): number => Number(new RegExp(`${name} .*?([\\d.]+) ms`).exec(text)?.[1]);
  expect(ttft('nvme_gen4')).toBeGreaterThan(0);
  expect(ttft('sata_ssd')).toBeGreaterThan(ttft('nvme_gen4'));
});
