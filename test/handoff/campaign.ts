/**
 * Conversations that a prefill server and a decode server answer together, behind a proxy, while the prefill process is
 * killed at random: each answer is compared with the answer of one server alone. Blocks go directly, or by a shared tier.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { HandoffOptions } from '../../examples/server/api/handoffs.ts';
import type { ServerOptions } from '../../examples/server/api/options.ts';
import { hostDigest } from '../../src/backends/host/hostDigest.ts';
import { RecordCodec, type SealedBlock } from '../../src/backends/remote/sealedRecord.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import { LiveServer, model } from '../examples/server/liveServer.ts';
import { portOfOurOwn } from '../ports.ts';
import { PrefillServer } from './prefillServer.ts';
import { isReplayed } from './replayed.ts';
import { prefillerHeader, Sidecar } from './sidecar.ts';

export interface PairOptions {
  readonly seed: number;
  readonly conversations: number;
  /** How often the prefill process is killed. */
  readonly kills: number;
  /** Conversations at a time. */
  readonly atOnce: number;
  /** A server that both share, by which blocks go then. Default: directly. */
  readonly remoteUrl?: string;
  /** MiB of HBM and of host memory of each server. Default: as the command has them, which takes a second to fill. */
  readonly mib?: { readonly hbm: number; readonly ddr: number };
  /** Prompts by which the time to the first token is taken. Default 0: not at all. */
  readonly timed?: number;
  readonly say?: (line: string) => void;
  /** Called after each batch with what there is so far. */
  readonly onBatch?: (report: PairReport) => void;
}

export interface PairReport {
  readonly conversations: number;
  /** Answers that were compared. */
  readonly answers: number;
  /** Answers that differed. */
  readonly wrong: number;
  readonly kills: number;
  /** What the decode server says of its hand-offs. */
  readonly received: Readonly<Record<string, number>>;
  /** Hand-offs that did not come whole, by why: outcome and reason, without numbers. */
  readonly unwhole: Readonly<Record<string, number>>;
  /** Requests that the decode server answered without a prefill leg. */
  readonly alone: number;
  /** Answers that differed while the prefill side sent wrong blocks: a comparison that finds none compares nothing. */
  readonly controlWrong: number;
  /** Of the logs of both processes, those whose inputs lead to the same decisions, byte for byte: 2. */
  readonly replayed: number;
  /** Milliseconds to the first token, by prompt: of one server, and of the pair. */
  readonly firstToken: { readonly single: readonly number[]; readonly pair: readonly number[] };
}

/** Turns of a conversation. */
const TURNS = 2;
const ANSWER_TOKENS = 3;
/** Share of requests that wait for a process that begins again; the others are answered without it meanwhile. */
const WAITING_SHARE = 0.8;
/** Conversations that one server answers before the pair does. */
const BATCH = 50;
/** Beginnings that conversations share. */
const KINDS = 4;
/** Conversations with wrong blocks. */
const CONTROLS = 4;
/** Letters of prompts that are timed. */
const TIMED_LETTERS = 400;

type Ask = (prompt: string) => Promise<string>;

export async function pairCampaign(options: PairOptions): Promise<PairReport> {
  const { seed, conversations, kills, atOnce, remoteUrl, timed = 0, say = () => {} } = options;
  const random = new SeededRandom(seed);
  const scratch = mkdtempSync(join(tmpdir(), 'tierkv-pair-'));
  const secretFile = join(scratch, 'secret.key');
  writeFileSync(
    secretFile,
    Uint8Array.from({ length: 32 }, () => random.below(256)),
  );
  const remote = remoteUrl === undefined ? undefined : { url: remoteUrl, bytes: 2 ** 30 };
  try {
    const leg = (role: HandoffOptions['role']): HandoffOptions => ({
      role,
      leaseMs: 30_000,
      answer: remote === undefined ? 'early' : 'whole',
      ...(role === 'prefill' && remote === undefined
        ? { listen: { host: '127.0.0.1', port: 0, advertise: '127.0.0.1' } }
        : {}),
    });
    const { mib } = options;
    const sizes = mib === undefined ? {} : { hbmBytes: mib.hbm * 2 ** 20, ddrBytes: mib.ddr * 2 ** 20 };
    await using single = await LiveServer.start(sizes);
    const decodeLog = join(scratch, 'decode.log');
    await using decode = await LiveServer.start({
      ...{ ...sizes, secretFile, remote, log: decodeLog },
      handoffs: leg('decode'),
    });
    const [port, handoffPort] = [await portOfOurOwn(), await portOfOurOwn()];
    const way = remoteUrl === undefined ? ['--handoff-port', String(handoffPort)] : ['--remote', remoteUrl];
    const asWords = mib === undefined ? [] : ['--hbm-mib', String(mib.hbm), '--ddr-mib', String(mib.ddr)];
    const logsAt = join(scratch, 'prefill.log.');
    await using prefill = await PrefillServer.start(
      port,
      ['--secret-file', secretFile, ...way, ...asWords],
      logsAt,
    );
    say('one server and a pair are up');

    // At these requests the process is killed, a moment after its answer.
    const killAt = new Set<number>();
    while (killAt.size < Math.min(kills, conversations * TURNS))
      killAt.add(random.below(conversations * TURNS));
    let asked = -Number.MAX_SAFE_INTEGER; // not before the conversations begin
    let restarting: Promise<void> = Promise.resolve();
    let isKilling = false;
    const between = async (): Promise<void> => {
      if (!killAt.has(asked++)) return;
      await sleep(random.below(40));
      if (isKilling) return; // two that fall on one moment are one
      isKilling = true;
      await prefill.kill();
      prefill.begin();
      isKilling = false;
      restarting = prefill.ready();
      restarting.catch(() => {});
    };
    await using proxy = await Sidecar.start(decode.url, { between });
    const to = { [prefillerHeader]: prefill.address };
    const alone = asking(single.url);
    const through = asking(proxy.url, to);
    const ask: Ask = async (text) => {
      if (random.chance(WAITING_SHARE)) await restarting;
      return through(text);
    };

    const controls = Array.from({ length: CONTROLS }, (_, i) => conversation(random, KINDS + i));
    const right = await all(controls, atOnce, (texts) => talk(alone, texts));
    const spoiled = { ...sizes, secretFile, remote, handoffs: leg('prefill') };
    const controlWrong = await control(controls, right, proxy, spoiled);
    say(`${controlWrong} wrong answers where wrong blocks were sent`);
    const firstToken: { single: number[]; pair: number[] } = { single: [], pair: [] };
    for (let i = 0; i < timed; i++) {
      const prompt = words(random, TIMED_LETTERS);
      firstToken.single.push(await firstTokenMs(single.url, prompt));
      firstToken.pair.push(await firstTokenMs(proxy.url, prompt, to));
    }

    const before = proxy.counts.alone;
    const receivedBefore = await received(decode);
    decode.lines.length = 0; // of the control
    asked = 0;
    let [done, answers, wrong] = [0, 0, 0];
    const report = async (): Promise<PairReport> => {
      const now = await received(decode);
      const since = Object.entries(now).map(([name, count]) => [name, count - (receivedBefore[name] ?? 0)]);
      return {
        conversations: done,
        answers,
        wrong,
        kills: prefill.kills,
        received: Object.fromEntries(since),
        unwhole: unwholeOf(decode.lines),
        alone: proxy.counts.alone - before,
        controlWrong,
        firstToken,
        replayed: 0,
      };
    };
    while (done < conversations) {
      const batch = Math.min(BATCH, conversations - done);
      const talks = Array.from({ length: batch }, () => conversation(random, random.below(KINDS)));
      const expected = await all(talks, atOnce, (texts) => talk(alone, texts));
      const answered = await all(talks, atOnce, (texts, i) => talk(ask, texts, expected[i]));
      answered.forEach((texts, i) => {
        answers += texts.length;
        wrong += differences(texts, expected[i]);
      });
      done += batch;
      options.onBatch?.(await report());
    }
    await restarting;
    await decode.idle();
    const { engine } = decode.serving;
    engine.cache.scheduler.checkIntegrity();
    engine.cache.kv.manager.checkIntegrity();
    const last = await report();
    const logs = [await prefill.stop(), decodeLog];
    await decode.serving.stop();
    return { ...last, replayed: logs.filter((log) => isReplayed(log)).length };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

async function received({ serving }: LiveServer): Promise<Record<string, number>> {
  const said = (await (await fetch(`${serving.operatorsUrl}/handoffs`)).json()) as {
    readonly received: Record<string, number>;
  };
  return said.received;
}

/** Hand-offs by why they came to less than the whole, from what the server told of them. */
function unwholeOf(lines: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const line of lines) {
    const [, outcome, reason] = /^hand-off: (\w+), .*?\((.*)\)$/.exec(line) ?? [];
    if (outcome === undefined) continue;
    const why = `${outcome}: ${reason.replace(/\d+/g, 'N')}`;
    counts[why] = (counts[why] ?? 0) + 1;
  }
  return counts;
}

/** The same with a prefill server that seals other bytes than it computed, under a digest that fits them. */
async function control(
  talks: readonly (readonly string[])[],
  expected: readonly (readonly string[])[],
  proxy: Sidecar,
  options: Partial<ServerOptions>,
): Promise<number> {
  const { seal, sealBeside } = RecordCodec.prototype;
  const spoil = (block: SealedBlock): SealedBlock => {
    const bytes = block.bytes.slice();
    for (let i = 3; i < bytes.length; i += 4) bytes[i] ^= 0x80; // the sign of each number
    return { ...block, bytes, digest: hostDigest(bytes) };
  };
  RecordCodec.prototype.seal = function (block) {
    return seal.call(this, spoil(block));
  };
  RecordCodec.prototype.sealBeside = function (block) {
    return sealBeside.call(this, this.isNative ? spoil(block) : block); // else it seals by the one above
  };
  try {
    await using prefill = await LiveServer.start(options);
    const ask = asking(proxy.url, { [prefillerHeader]: new URL(prefill.url).host });
    let wrong = 0;
    for (const [i, texts] of talks.entries()) {
      wrong += differences(await talk(ask, texts, expected[i]), expected[i]);
    }
    return wrong;
  } finally {
    Object.assign(RecordCodec.prototype, { seal, sealBeside });
  }
}

function differences(answers: readonly string[], expected: readonly string[]): number {
  return answers.filter((answer, i) => answer !== expected[i]).length;
}

/** What a user says, turn by turn. @param kind what it begins with: others of the kind begin so too */
function conversation(random: SeededRandom, kind: number): string[] {
  const common = words(new SeededRandom(kind), 24);
  return Array.from(
    { length: TURNS },
    (_, turn) => (turn === 0 ? common : '') + words(random, 16 + random.below(24)),
  );
}

function words(random: SeededRandom, letters: number): string {
  return Array.from({ length: letters }, () => 'abcdefghijklmnopqrstuvwxyz     '[random.below(31)]).join('');
}

/** @param known answers that the next turns go on from; default: the answers that come */
async function talk(ask: Ask, texts: readonly string[], known?: readonly string[]): Promise<string[]> {
  const answers: string[] = [];
  let said = '';
  for (const [turn, text] of texts.entries()) {
    said += text;
    answers.push(await ask(said));
    said += known?.[turn] ?? answers[turn];
  }
  return answers;
}

function asking(url: string, headers: Readonly<Record<string, string>> = {}): Ask {
  return async (prompt) => {
    const body = { model, prompt, max_tokens: ANSWER_TOKENS, temperature: 0, ignore_eos: true };
    const answer = await fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    const read = (await answer.json()) as { choices?: { text: string }[]; error?: unknown };
    if (!answer.ok || read.choices === undefined)
      throw new Error(`${answer.status}: ${JSON.stringify(read)}`);
    return read.choices[0].text;
  };
}

/** All of them, `atOnce` at a time. */
async function all<In, Out>(
  items: readonly In[],
  atOnce: number,
  act: (item: In, i: number) => Promise<Out>,
): Promise<Out[]> {
  const ends = new Array<Out>(items.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    for (let i = next++; i < items.length; i = next++) ends[i] = await act(items[i], i);
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
  return ends;
}

async function firstTokenMs(
  url: string,
  prompt: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<number> {
  const sinceMs = performance.now();
  const body = { model, prompt, max_tokens: 2, temperature: 0, ignore_eos: true, stream: true };
  const answer = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  if (!answer.ok || answer.body === null) throw new Error(`${answer.status}`);
  let tookMs = Number.NaN;
  for await (const _part of answer.body) if (Number.isNaN(tookMs)) tookMs = performance.now() - sinceMs;
  return tookMs;
}
