/**
 * A decision log explains each request as the live runtime did, by command and by library; logs that were cut, edited or are of
 * another version, and questions that cannot be answered, are refused with what to do.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { explainCommand } from '../../../src/cli/explain.ts';
import type { CacheExplanation } from '../../../src/embed/explanation.ts';
import { explanationText } from '../../../src/observe/explain/explanationText.ts';
import { LogExplainer } from '../../../src/observe/explain/logExplainer.ts';
import { blocks, layout, openRuntime, prompt, tenant, write } from '../../embed/liveRuntime.ts';
import { resultOf, resultProblems } from '../../resultSchema.ts';
import { printedBy } from '../printed.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-explained-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const log = join(folder, 'kv.log');
const live = new Map<number, CacheExplanation>();
let lines: string[] = [];

beforeAll(async () => {
  await using kv = await openRuntime({
    explain: true,
    log,
    ddrBytes: blocks(24),
    eviction: { policy: 'lru' },
    migration: false,
    leavingShare: 1,
  });
  for (let i = 0; i < 30; i++) {
    const sequence = await kv.begin(prompt((i * i) % 13), { tenant: i % 4 === 0 ? 'tenant-b' : tenant });
    write(kv, sequence, i);
    await kv.seal(sequence);
    const { id } = sequence.groups[0].table;
    kv.release(sequence);
    await kv.idle();
    live.set(id, kv.explain(id));
  }
  await kv.close();
  lines = readFileSync(log, 'utf8').split('\n').filter(Boolean);
});

function explain(...words: string[]): Promise<string> {
  return printedBy(explainCommand(), ...words);
}

describe('a decision log', () => {
  it('gives the same tier, cause and eviction for every block of every request', () => {
    const explainer = new LogExplainer(lines, log);
    const causes = new Set<string | null>();
    for (const [id, explanation] of live) {
      const logged = explainer.request(String(id));
      const facts = ({ blocks: all }: CacheExplanation): object[] =>
        all.map(({ tier, cause, usedSince, lost }) => ({
          tier,
          // a log has no tokens: it cannot look for them under other tenants
          cause: cause === 'anotherTenant' ? 'neverSeen' : cause,
          usedSince,
          by: lost?.by,
          sequence: lost?.sequence,
        }));
      expect(facts(logged)).toEqual(facts(explanation));
      for (const { cause } of explanation.blocks) causes.add(cause);
    }
    for (const cause of ['anotherTenant', 'evicted', 'neverSeen', null]) expect(causes).toContain(cause);
  });

  it('by command: a request, the life of a block, a prefix, and JSON', async () => {
    const [id, explanation] = [...live].find(([, { blocks: all }]) =>
      all.some(({ cause }) => cause === 'evicted'),
    )!;
    const text = await explain(log, '--request', String(id));
    expect(text).toContain(`sequence ${id}`);
    expect(text).toMatch(/evicted from ddr at .* by lru/);
    const { key } = explanation.blocks.find(({ cause }) => cause === 'evicted')!;
    const life = await explain(log, '--block', key);
    for (const what of ['sealed', 'published (hbm)', 'sent down (ddr)', 'dropped (ddr)'])
      expect(life).toContain(what);
    const keys = join(folder, 'keys.txt');
    writeFileSync(keys, `${explanation.blocks.map((each) => each.key).join('\n')}\n`);
    expect(await explain(log, '--prefix', keys)).toContain('these tokens');
    const tokens = join(folder, 'tokens.json');
    const { layers, kvHeads, headDim, dtype, blockTokens } = layout;
    writeFileSync(
      tokens,
      JSON.stringify({
        tokens: [...prompt(5)],
        tenant,
        model: 'test@1',
        secretKey: '07'.repeat(32),
        layout: { layers, kvHeads, headDim, dtype, blockTokens },
        otherTenants: ['tenant-b'],
      }),
    );
    expect(await explain(log, '--prefix', tokens)).toContain(tenant);
    const json = join(folder, 'out.json');
    await explain(log, '--request', String(id), '--json', json);
    const found = resultOf<CacheExplanation>('explain', readFileSync(json, 'utf8'));
    expect(found).toMatchObject({ sequence: id });
    await explain(log, '--block', String(found.blocks[0].key), '--json', json);
    expect(resultOf<object>('explain', readFileSync(json, 'utf8'))).toMatchObject({
      key: found.blocks[0].key,
    });
    const wrong = { ...found, blocks: [{ block: -1 }] }; // the shape can fail
    const shapeless = JSON.stringify({
      schema: 'tierkv.result/1',
      command: 'explain',
      tierkv: '0.1.0',
      result: wrong,
    });
    expect(resultProblems(shapeless)).not.toEqual([]);
  });

  it('an explanation as text has one line for neighbours with one reason', () => {
    const [, explanation] = [...live][0];
    expect(explanationText(explanation)).toContain('blocks 0 to 3: never seen before');
  });

  it('that was cut, edited, of another version or another kind is refused with its line', async () => {
    const bad = async (name: string, all: readonly string[]): Promise<void> => {
      writeFileSync(join(folder, name), `${all.join('\n')}\n`);
      await explain(join(folder, name), '--request', '1');
    };
    await expect(bad('cut', lines.slice(0, -3))).rejects.toThrow(
      /cut:\d+ is the last line, and no end follows/,
    );
    await expect(
      bad(
        'gap',
        lines.filter((_, i) => i !== 20),
      ),
    ).rejects.toThrow(/gap:\d+ does not follow from the lines/);
    await expect(bad('old', [lines[0].replace(/log \d+/, 'log 2'), ...lines.slice(1)])).rejects.toThrow(
      /old:1 is of version 2, and this tierkv reads version \d+/,
    );
    await expect(bad('other', ['{"a":1}'])).rejects.toThrow(/is not the head of a tierkv decision log/);
    await expect(explain(join(folder, 'none'), '--request', '1')).rejects.toThrow(/none does not exist/);
  });

  it('questions that cannot be answered say what to do', async () => {
    await expect(explain(log, '--request', '4000')).rejects.toThrow(
      /request 4000 is not in .*sequences 1 to \d+/,
    );
    await expect(explain(log, '--block', 'abc')).rejects.toThrow(/Give a key of 32 hexadecimal digits/);
    await expect(explain(log)).rejects.toThrow(/Ask one of --request ID, --block KEY and --prefix FILE/);
    await expect(explain(log, '--request', '1', '--block', 'a'.repeat(32))).rejects.toThrow(
      /beside another question/,
    );
    await expect(explain('--request', '1')).rejects.toThrow(/Name a decision log/);
    await expect(explain(log, '--request', '1', '--json', folder)).rejects.toThrow(/is a directory/);
    const file = join(folder, 'prefix');
    const asked = async (text: string): Promise<string> => {
      writeFileSync(file, text);
      return explain(log, '--prefix', file);
    };
    await expect(asked('zzz')).rejects.toThrow(/prefix:1 is not the key of a block/);
    await expect(asked('')).rejects.toThrow(/names no block/);
    await expect(asked('{"tokens": 3}')).rejects.toThrow(
      /prefix: tokens must be an array, and it is 3\. Give it a list of token ids/,
    );
    await expect(asked('{"token": []}')).rejects.toThrow(
      /prefix: token is unknown here\. Did you mean 'tokens'\?/,
    );
  });
});

describe('a simulation by command', () => {
  it('explains a request of it', async () => {
    const text = await explain(
      ...['--simulated', '--request', 'request_3', '--', '--model', 'qwen/qwen3-14b', '--num-requests', '6'],
    );
    expect(text).toContain('instance_0: request request_3');
    await expect(explain('--simulated', '--', '--model', 'qwen/qwen3-14b')).rejects.toThrow(/--request/);
    await expect(
      explain(
        '--simulated',
        '--request',
        'request_x',
        '--',
        '--model',
        'qwen/qwen3-14b',
        '--num-requests',
        '3',
      ),
    ).rejects.toThrow(/Did you mean 'request_/);
  });
});
