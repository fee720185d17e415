/**
 * Mixed traffic on the example server: whole answers, streams, and clients that leave in the middle, from
 * many clients at once, over tiers so small that most KV leaves HBM. Prompts are tokens or texts, and
 * tokenizers of three kinds make texts of the answers. Every text is compared with the text of an engine that
 * has room for all and reuses nothing.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import OpenAI from 'openai';
import { Engine } from '../../examples/server/engine/index.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import { blockBytes, LiveServer, model, stateDirectory } from '../examples/server/liveServer.ts';
import { modelOfKind, type TokenizerKind } from '../examples/server/tokenizerKinds.ts';
import { sharedDevice } from '../sharedDevice.ts';
import { fillMemories } from './filling.ts';

export interface LoadOptions {
  readonly seed: number;
  readonly clients: number;
  /** Default `byte-level`. */
  readonly tokenizer?: TokenizerKind;
  /** Different requests. Default 24. */
  readonly kinds?: number;
  /** Answers, or seconds, after which the load ends; one of the two is given. */
  readonly answers?: number;
  readonly seconds?: number;
  /** What has to have happened before the answers are enough; twenty times as many are in any case. */
  readonly sees?: readonly (keyof Seen)[];
  /** Whether memories of uses that are only bounded by many of them are full before. Default false. */
  readonly fills?: boolean;
  /** Default: memory is not looked at. */
  readonly sampleEveryMs?: number;
  /** Called when all is ready; the load begins when it is fulfilled. */
  readonly ready?: () => Promise<void>;
  readonly onSample?: (sample: LoadSample, done: LoadCounts) => void;
}

export interface LoadSample {
  readonly seconds: number;
  /** After a collection. */
  readonly heapBytes: number;
  readonly residentBytes: number;
}

export interface LoadCounts {
  whole: number;
  streamed: number;
  left: number;
  refused: number;
  wrong: number;
}

export interface LoadReport {
  readonly counts: LoadCounts;
  readonly samples: readonly LoadSample[];
  /** What is wrong at the end; empty where nothing is. */
  readonly problems: readonly string[];
  readonly reloads: number;
  readonly preemptions: number;
}

type Seen = LoadCounts & { readonly reloads: number; readonly preemptions: number };

interface Wanted {
  readonly prompt: number[] | string;
  readonly max_tokens: number;
  readonly temperature: number;
  readonly seed: number;
}

export async function serverLoad(options: LoadOptions): Promise<LoadReport> {
  const random = new SeededRandom(options.seed);
  const kinds = options.kinds ?? 24;
  const pool = requests(random, kinds);
  const directory = modelOfKind(options.tokenizer ?? 'byte-level');
  const expected = await answersAlone(directory, pool);
  await using server = await LiveServer.start({
    directory,
    state: stateDirectory(),
    hbmBytes: 30 * blockBytes,
    ddrBytes: 40 * blockBytes,
    nvmeBytes: 200 * blockBytes,
    maxSequences: 16,
    maxWaiting: 12,
  });
  if (options.fills === true) await fillMemories(server.serving.engine.cache);
  await options.ready?.();
  const client = server.client();
  const counts: LoadCounts = { whole: 0, streamed: 0, left: 0, refused: 0, wrong: 0 };
  const samples: LoadSample[] = [];
  const startMs = performance.now();
  const seconds = (): number => (performance.now() - startMs) / 1000;
  const seen = (): Seen => {
    const { counters } = server.serving.engine.cache.kv.metrics();
    const { preemptions } = server.serving.engine.cache.scheduler.counters;
    return { ...counts, reloads: counters['reloads.ddr'] + counters['reloads.nvme'], preemptions };
  };
  // which clients leave, and what has to be reloaded, follows from how fast answers come here and now
  const lacks = (): boolean => (options.sees ?? []).some((name) => seen()[name] === 0);
  const isOver = (): boolean => {
    if (seconds() >= (options.seconds ?? Number.POSITIVE_INFINITY)) return true;
    const done = counts.whole + counts.streamed + counts.left;
    const { answers = Number.POSITIVE_INFINITY } = options;
    return done >= answers && (done >= 20 * answers || !lacks());
  };
  const { sampleEveryMs } = options;
  const sampling = (async () => {
    for (; sampleEveryMs !== undefined && !isOver(); await sleep(sampleEveryMs)) {
      samples.push(sampleNow(seconds()));
      options.onSample?.(samples[samples.length - 1], counts);
    }
  })();
  await Promise.all(
    Array.from({ length: options.clients }, async () => {
      while (!isOver()) {
        const at = random.below(kinds);
        await oneAnswer(client, pool[at], expected[at], random, counts);
      }
    }),
  );
  await sampling;
  await server.idle();
  samples.push(sampleNow(seconds()));
  const { engine } = server.serving;
  const { gauges } = engine.cache.kv.metrics();
  engine.cache.scheduler.checkIntegrity();
  const problems: string[] = [];
  if (counts.wrong > 0) problems.push(`${counts.wrong} answers are not what they are without a cache`);
  if (gauges.sequences > 0) problems.push(`${gauges.sequences} sequences are still open`);
  if (gauges['heldBytes.hbm'] > 0) problems.push(`${gauges['heldBytes.hbm']} bytes of HBM are still held`);
  for (const line of server.lines) if (/Error/.test(line)) problems.push(line);
  const { reloads, preemptions } = seen();
  return { counts, samples, problems, reloads, preemptions };
}

/**
 * Four beginnings that many share, and ends of their own; half of the requests are greedy, and every third
 * prompt is a text.
 */
function requests(random: SeededRandom, kinds: number): Wanted[] {
  const tokens = (count: number): number[] => Array.from({ length: count }, () => 3 + random.below(509));
  const prefixes = Array.from({ length: 4 }, (_, i) => tokens(16 * (2 + i)));
  return Array.from({ length: kinds }, (_, i) => ({
    prompt:
      i % 3 === 0 ? textOf(random) : [...prefixes[i % prefixes.length], ...tokens(1 + random.below(30))],
    max_tokens: 4 + random.below(24),
    temperature: i % 2,
    seed: i,
  }));
}

function textOf(random: SeededRandom): string {
  const words = ['the captain', 'knew', 'every island', '. Größe', '日本語', ', and', '"so"!'];
  const more = Array.from({ length: 1 + random.below(12) }, () => words[random.below(words.length)]);
  return `Once upon a time there lived an old captain. ${more.join(' ')}`;
}

async function answersAlone(directory: string, pool: readonly Wanted[]): Promise<string[]> {
  const engine = await Engine.open({
    directory,
    cache: { secretKey: new Uint8Array(32), hbmBytes: 256 * blockBytes, device: sharedDevice },
    reuse: false,
  });
  const texts: string[] = [];
  for (const { prompt: wanted, max_tokens: maxTokens, temperature, seed } of pool) {
    const prompt = typeof wanted === 'string' ? engine.tokenizer.encode(wanted, true) : wanted;
    const sampling = { temperature, seed, topK: 0, topP: 1 };
    texts.push(await engine.submit({ prompt, tenant: 'local', maxTokens, sampling, stop: [] }).text());
  }
  await engine.close();
  return texts;
}

async function oneAnswer(
  client: OpenAI,
  wanted: Wanted,
  expected: string,
  random: SeededRandom,
  counts: LoadCounts,
): Promise<void> {
  const request = { model, ...wanted };
  const leavesAfter = random.chance(0.2) ? 1 + random.below(6) : Number.POSITIVE_INFINITY;
  try {
    if (random.chance(0.5)) {
      const { choices } = await client.completions.create(request);
      counts.whole++;
      if (choices[0].text !== expected) counts.wrong++;
      return;
    }
    let text = '';
    let pieces = 0;
    for await (const { choices } of await client.completions.create({ ...request, stream: true })) {
      text += choices[0].text;
      if (++pieces >= leavesAfter) break;
    }
    if (pieces >= leavesAfter) counts.left++;
    else counts.streamed++;
    if (pieces >= leavesAfter ? !expected.startsWith(text) : text !== expected) counts.wrong++;
  } catch (error) {
    if (!(error instanceof OpenAI.RateLimitError)) throw error;
    counts.refused++;
    await sleep(20);
  }
}

let collect: (() => void) | undefined;

function sampleNow(seconds: number): LoadSample {
  if (collect === undefined) {
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as () => void;
  }
  collect();
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage();
  return { seconds, heapBytes: heapUsed + arrayBuffers, residentBytes: rss };
}
