import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { PassThrough } from 'node:stream';
import { afterEach, expect, it } from 'vitest';
import { serveHttp, serveLines } from '../../../src/policy/evaluate/transports.ts';
import { EvaluationService } from '../../../src/policy/evolve/serve.ts';
import { WeightEvaluator } from './weightEvaluator.ts';

const program =
  'WEIGHT = 0.5\ndef score(request, cluster, instances):\n    return [WEIGHT for i in instances]\n';
const cleanUp: (() => void)[] = [];
afterEach(() => {
  for (const clean of cleanUp.splice(0)) clean();
});

async function talk(text: string): Promise<unknown[]> {
  const input = new PassThrough();
  const output = new PassThrough();
  const service = new EvaluationService({ evaluator: new WeightEvaluator() });
  input.end(text);
  await serveLines(service, input, output);
  output.end();
  let answers = '';
  for await (const part of output) answers += String(part);
  return answers
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);
}

const line = (value: unknown): string => `${JSON.stringify(value)}\n`;

it('each line is answered by its id, the quick ones before the slow ones', async () => {
  const slow = { id: 'slow', method: 'evaluate', params: { candidate: { routing: `${program}# hang\n` } } };
  const quick = { id: 'quick', method: 'evaluate', params: { candidate: { routing: program } } };
  const input = new PassThrough();
  const output = new PassThrough();
  const service = new EvaluationService({ evaluator: new WeightEvaluator() });
  input.write(line(slow) + line(quick));
  const serving = serveLines(service, input, output);
  const answers = createInterface({ input: output })[Symbol.asyncIterator]();
  const next = async (): Promise<string> =>
    (JSON.parse(String((await answers.next()).value)) as { id: string }).id;
  expect(await next()).toBe('quick');
  // the slow one would go on for ever
  input.end(line({ id: 'stop', method: 'cancel', params: { id: 'slow' } }));
  expect([await next(), await next()].sort()).toEqual(['slow', 'stop']);
  await serving;
});

it('a line that is not JSON gets an error, the next one its answer; nothing after shutdown is read', async () => {
  const answers = await talk(
    `not json\n\n${line({ id: 1, method: 'status' })}${line({ id: 2, method: 'shutdown' })}${line({ id: 3, method: 'status' })}`,
  );
  expect(answers).toHaveLength(3);
  expect(answers[0]).toMatchObject({ id: null, error: { code: 'TKV_INPUT' } });
});

async function open(): Promise<string> {
  const service = new EvaluationService({ evaluator: new WeightEvaluator() });
  const server = await serveHttp(service, '127.0.0.1', 0);
  cleanUp.push(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function post(url: string, body: string): Promise<{ status: number; json: Record<string, unknown> }> {
  const response = await fetch(url, { method: 'POST', body });
  return { status: response.status, json: (await response.json()) as Record<string, unknown> };
}

it('HTTP answers as stdio does, and as the evaluation server of GEPA', async () => {
  const url = await open();
  const rpc = await post(`${url}/rpc`, JSON.stringify({ id: 7, method: 'baseline' }));
  expect(rpc.json).toMatchObject({ id: 7, result: { status: 'success' } });
  const whole = await post(`${url}/evaluate`, JSON.stringify({ candidate: { routing: program } }));
  expect(whole.json).toMatchObject({ score: 1.5, info: { status: 'success' } });
  const body = { candidate: { routing: program }, example_id: 'bursty/roofline/1' };
  expect((await post(`${url}/evaluate`, JSON.stringify(body))).json.score).toBeCloseTo(1.4, 12);
  const unknown = await post(`${url}/evaluate`, JSON.stringify({ ...body, example_id: 'nowhere' }));
  expect([unknown.status, unknown.json.error]).toEqual([400, expect.stringContaining('nowhere')]);
  expect((await fetch(`${url}/task`)).status).toBe(200);
  expect(await (await fetch(`${url}/status`)).json()).toMatchObject({ running: 0 });
});

it('HTTP refuses a body that is not JSON or too large, and unknown paths', async () => {
  const url = await open();
  expect((await post(`${url}/rpc`, '{')).status).toBe(400);
  expect((await post(`${url}/rpc`, 'x'.repeat(4_000_001))).status).toBe(413);
  expect((await post(`${url}/else`, '{}')).status).toBe(404);
});

it('a port that is taken is an error that says so', async () => {
  const port = Number(new URL(await open()).port);
  const service = new EvaluationService({ evaluator: new WeightEvaluator() });
  await expect(serveHttp(service, '127.0.0.1', port)).rejects.toThrow(/cannot be had.*http/);
});
