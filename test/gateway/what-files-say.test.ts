import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadPlan } from '../../src/policy/evaluate/plans.ts';
import { planCase, runCase } from '../../src/policy/evaluate/runCase.ts';
import { bindBundle } from '../../src/policy/evolve/binding/bind.ts';
import { readControlFile, readKeySecret, readTenants } from '../../src/serve/gateway/files.ts';
import { traceLine } from '../../src/serve/gateway/trace.ts';
import { prefixBundle } from './recordedRun.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-files-'));
afterAll(() => rmSync(folder, { recursive: true }));

function file(name: string, text: string): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

describe('tenants', () => {
  it('a line for each key', () => {
    expect([...readTenants(file('t', '# keys\n\nk1 = shop\nk2=shop\n k3=other\n'))]).toEqual([
      ['k1', 'shop'],
      ['k2', 'shop'],
      ['k3', 'other'],
    ]);
  });

  it.each([
    ['secret\n', 1],
    ['a=b\nsecret=\n', 2],
    ['a=b\nsecret=c\nsecret=d\n', 3],
    ['two words=c\n', 1],
    ['secret=c=d\n', 1],
  ])('%j is refused with line %i, and its keys are not told', (text, line) => {
    const read = (): unknown => readTenants(file('t', text));
    expect(read).toThrowError(expect.objectContaining({ code: 'TKV_INPUT', line }));
    expect(read).not.toThrowError(/secret/);
  });
});

it('a secret of keys has 16 to 32 bytes', () => {
  expect(readKeySecret(file('s', `${'ab'.repeat(16)}\n`), '--key-secret')).toHaveLength(16);
  for (const text of ['ab'.repeat(15), 'ab'.repeat(33), 'xy'.repeat(16), '']) {
    expect(() => readKeySecret(file('s', text), '--key-secret')).toThrowError(
      expect.objectContaining({ code: 'TKV_CONFIG', field: '--key-secret' }),
    );
  }
});

describe('a file without the section control', () => {
  it.each<[string, string, RegExp]>([
    [
      'a letter too many',
      'controll:\n  routing: {policy: least-loaded}\n',
      /no section "control"\. Write "control" for "controll"/,
    ],
    ['another case', 'Control:\n  routing: {policy: least-loaded}\n', /Write "control" for "Control"/],
    [
      "llm-d's rules",
      'apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\nplugins: []\n',
      /which is a resource of Kubernetes, such as an EndpointPickerConfig of llm-d, and no deployment file/,
    ],
    [
      "llm-d's rules without a head",
      'plugins: []\nschedulingProfiles: []\n',
      /EndpointPickerConfig of llm-d/,
    ],
    ["LiteLLM's", 'model_list: []\n', /LiteLLM/],
    ['the section alone', 'routing: {policy: least-loaded}\n', /has routing and no section "control"/],
    ['nothing', '{}\n', /has no section/],
  ])('%s is refused by name', (_what, text, problem) => {
    const path = file('c.yaml', text);
    expect(() => readControlFile(path)).toThrow(problem);
    expect(() => readControlFile(path)).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'control' }),
    );
  });
});

describe('the control section of a deployment file', () => {
  const whole = `version: 1
control:
  admission: {policy: token-bucket, capacity: 50}
  routing: {policy: weighted, scorers: {prefix-affinity: 2, queue-depth: 1}}
  gateway: {policy: banded, detector: concurrency, tick_us: 2000, ttl_us: 30000}
`;
  it('is what simulate reads, and signals are as fresh as they come unless it says otherwise', () => {
    const { control, queue } = readControlFile(file('d.yaml', whole));
    expect(control.routing).toMatchObject({
      policy: 'weighted',
      scorers: { 'prefix-affinity': 2, 'queue-depth': 1 },
    });
    expect(control.admission).toMatchObject({ policy: 'token-bucket', capacity: 50 });
    expect(queue).toEqual({ tickUs: 2000, ttlUs: 30_000 });
    expect(control.signals).toBe(undefined);
    const aged = readControlFile(file('e.yaml', `${whole}  signals: {snapshot_interval_us: 7}\n`));
    expect(aged.control.signals).toMatchObject({ snapshotIntervalUs: 7 });
  });

  it('a mistake in it is named by file and line', () => {
    const bad = file('f.yaml', whole.replace('weighted', 'weigted'));
    expect(() => readControlFile(bad)).toThrowError(/f\.yaml:4.*weigted/);
  });
});

describe('a plan may name a recorded trace and a deployment file', () => {
  const words = (group: number): Uint32Array => Uint32Array.from([group, 1, 0, 0, group, 2, 0, 0]);
  const lines = Array.from({ length: 40 }, (_, i) =>
    JSON.stringify(
      traceLine(
        {
          ...{ id: `r${i}`, arrivalUs: i * 50_000, promptTokens: 40, words: words(i % 4), outputTokens: 3 },
          ...{
            maxTokens: 3,
            model: 'm',
            adapter: '',
            tenantId: '',
            sloClass: '',
            sloTargetUs: 0,
            deadlineUs: 0,
            sessionId: '',
            streams: false,
          },
          ...{
            outcome: 'completed',
            unknownEnd: '',
            backend: 'b',
            prefillBackend: '',
            ttftUs: 1,
            e2eUs: 2,
            countedPromptTokens: -1,
            cachedTokens: -1,
          },
        },
        16,
      ),
    ),
  );
  it('its cases are served as they arrived, on the servers of the file', async () => {
    file('trace.jsonl', `${lines.join('\n')}\n`);
    const deployment = file(
      'servers.yaml',
      `version: 1
models: [{name: llama-3.1-8b-instruct, hardware: H100, latency_model: roofline}]
pools: [{name: p, replicas: 2, engine: {total_kv_blocks: 100, block_size_in_tokens: 16}}]
`,
    );
    const plan = file(
      'plan.json',
      JSON.stringify({
        workloads: ['trace.jsonl'],
        args: ['--deployment', deployment],
        suites: { train: { seeds: [1] }, validation: { seeds: [2] }, hidden: { seeds: [3] } },
      }),
    );
    const { suites } = loadPlan(plan);
    expect(suites.train.map(({ id }) => id)).toEqual(['trace.jsonl/file/1']);
    const { metrics, built } = runCase(await bindBundle(prefixBundle), planCase(suites.train[0]));
    expect(metrics.requests).toBe(40);
    expect(built.simulation.instances).toHaveLength(2);
    // four beginnings of two blocks: each is computed once, or twice where both servers got it
    expect(metrics.cache_hit_rate).toBeGreaterThan(0.5);
  });
});
