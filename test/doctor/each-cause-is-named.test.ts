/** Twelve causes and more: each is named at its place in recorded conversations, and nothing is named where nothing broke. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { type Diagnosis, diagnose } from '../../src/serve/doctor/doctor.ts';
import { readRecording } from '../../src/serve/doctor/recordedRequests.ts';
import { conversations, mixed, type Recorded } from './conversations.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-doctor-'));
afterAll(() => rmSync(dir, { recursive: true }));

function diagnosed(records: readonly object[], name = 'r.jsonl'): Diagnosis {
  const file = join(dir, name);
  writeFileSync(file, records.map((record) => `${JSON.stringify(record)}\n`).join(''));
  return diagnose([readRecording(file)]);
}

describe('alone', () => {
  it.each(conversations)('$name', ({ cause, path, turns }) => {
    const { findings, conversations: count } = diagnosed(turns);
    expect(findings.map((finding) => finding.cause)).toEqual(cause === undefined ? [] : [cause]);
    if (path !== undefined) expect(findings[0].path).toContain(path);
    if (cause !== undefined) expect(findings[0].lostTokens).toBeGreaterThan(50);
    expect(count).toBe(1);
  });
});

it('all at once, turn by turn, without an id of a conversation', () => {
  const { findings, conversations: count, turns } = diagnosed(mixed(conversations));
  expect(turns).toHaveLength(conversations.reduce((all, each) => all + each.turns.length, 0));
  const causes = conversations.flatMap(({ cause }) => (cause === undefined ? [] : [cause]));
  expect(findings.map(({ cause }) => cause).sort()).toEqual(causes.sort());
  expect(count).toBe(conversations.length);
});

it('a body alone, a record of a proxy, a list and an archive of a browser say the same', () => {
  const { turns } = conversations[0];
  const plain = (diagnosis: Diagnosis) =>
    diagnosis.findings.map(({ cause, path, lostTokens, turns: count }) => ({
      cause,
      path,
      lostTokens,
      count,
    }));
  const expected = plain(diagnosed(turns));
  const bodies = turns.map(({ body }) => body);
  expect(plain(diagnosed(bodies))).toEqual(expected);
  expect(
    plain(
      diagnosed(bodies.map((body) => ({ request: { method: 'POST', url: '/v1/chat/completions', body } }))),
    ),
  ).toEqual(expected);
  expect(plain(diagnosed(bodies.map((body) => ({ time: 1, body: JSON.stringify(body) }))))).toEqual(expected);
  const list = join(dir, 'list.json');
  writeFileSync(list, JSON.stringify(bodies, undefined, 2));
  expect(plain(diagnose([readRecording(list)]))).toEqual(expected);
  const archive = join(dir, 'a.har');
  const entries = [
    { request: { url: 'https://a.example/page', method: 'GET' }, response: { content: { text: '<p>' } } },
    ...bodies.map((body) => ({
      request: { url: 'https://a.example/v1/chat', method: 'POST', postData: { text: JSON.stringify(body) } },
      response: { content: { text: '' } },
    })),
  ];
  writeFileSync(archive, JSON.stringify({ log: { version: '1.2', entries } }, undefined, 2));
  const recording = readRecording(archive);
  expect(recording.others).toBe(1);
  expect(plain(diagnose([recording]))).toEqual(expected);
});

it('usage of both vendors and of streams is read', () => {
  const { turns } = conversations.find(({ cause }) => cause === 'evicted') as { turns: readonly Recorded[] };
  const asAnthropic = (record: Recorded): object => {
    const { usage } = record.response as {
      usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
    };
    const cached = usage.prompt_tokens_details.cached_tokens;
    return {
      ...record,
      response: {
        type: 'message',
        usage: {
          input_tokens: usage.prompt_tokens - cached,
          cache_read_input_tokens: cached,
          cache_creation_input_tokens: 0,
          output_tokens: 1,
        },
      },
    };
  };
  const asStream = (record: Recorded): object => ({
    ...record,
    response: `data: {"choices":[{"delta":{"content":"yes"}}]}\n\ndata: ${JSON.stringify(record.response)}\n\ndata: [DONE]\n\n`,
  });
  const asEvents = (record: Recorded): object => {
    const { response } = asAnthropic(record) as { response: object };
    return {
      ...record,
      response: `event: message_start\ndata: ${JSON.stringify({ type: 'message_start', message: response })}\n\n`,
    };
  };
  const expected = diagnosed(turns);
  expect(expected.isCounted).toBe(true);
  for (const form of [asAnthropic, asStream, asEvents]) {
    const { findings, isCounted } = diagnosed(turns.map(form));
    expect(findings).toEqual(expected.findings);
    expect(isCounted).toBe(true);
  }
});

it('two conversations that share the system text and a template are two', () => {
  const frame = (issue: string): string =>
    `Solve this issue:\n${issue}\n${'Run the tests before you hand in.\n'.repeat(4)}`;
  const chats = ['first', 'second'].map((name) => ({
    model: 'm',
    messages: [
      { role: 'system', content: 'You are careful.\n'.repeat(40) },
      {
        role: 'user',
        content: frame(
          Array.from({ length: 20 }, (_, i) => `${name} ${i} is broken by ${name}${i}.`).join('\n'),
        ),
      },
    ],
  }));
  const { findings, conversations: count } = diagnosed(chats);
  expect(findings).toEqual([]);
  expect(count).toBe(2);
});

it('a line that is not JSON is told with its place, and the remedy', () => {
  const file = join(dir, 'bad.jsonl');
  writeFileSync(
    file,
    `${JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'a' }] })}\n{"model": \n`,
  );
  expect(() => readRecording(file)).toThrow(
    /bad\.jsonl:2: is not valid JSON: .*Give JSON lines of request bodies, or a HAR file\./,
  );
});
