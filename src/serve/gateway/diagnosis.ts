/**
 * Why a prompt was not found in a cache, told with its answer: the client changed it, the server evicted it, it went to another
 * server, or it was never seen. A gateway remembers prints of recent prompts (promptPrints.ts), each tenant's own and none of
 * another's, and compares a prompt with the earlier one that its client names (`diagnostics.previous_message_id`, as Anthropic's
 * API has it), or else with one whose newest message it holds.
 *
 * A prompt is printed and compared while its server works, so that no server waits for it. Prompts of a few kilobytes are left
 * alone unless their client asks.
 */

import type { IncomingMessage } from 'node:http';
import { withMembers, withoutMark } from '../../runtime/boundedJson.ts';
import { type PromptInParts, promptOf } from '../doctor/promptParts.ts';
import type { AnswerMeter } from './answerMeter.ts';
import { promptPaths } from './apis.ts';
import type { Backend } from './backend.ts';
import type { BodyFields } from './chatPrompts.ts';
import { headerText, keyOf } from './heads.ts';
import { type ComparedPrints, comparePrints, type PromptPrint, printOf, tipsHeld } from './promptPrints.ts';
import type { PromptCutter } from './prompts.ts';

/** Bytes of a body below which a prompt is left alone unless its client asks: a server keeps little of it. */
const SMALL_BYTES = 4096;
const BYTES_A_TOKEN = 4;
/** Earlier prompts with the same newest message that are compared. */
const COMPARED_MOST = 6;
/** Messages of a prompt that are looked up, the newest first. */
const LOOKED_UP_MOST = 64;
/** Bytes of a remembered prompt beside its print. */
const ENTRY_BYTES = 400;
/** A server that found less than this share of what a prompt continues had dropped it, and fewer tokens are the last block. */
const FOUND_SHARE = 0.5;
const EVICTED_TOKENS = 256;

interface RememberedPrompt {
  readonly id: string;
  readonly print: PromptPrint;
  /** The server that answered. */
  readonly backend: Backend;
}

/** Prompts of one tenant. */
interface TenantPrompts {
  /** Prompts by the id of the answer, the oldest first. */
  readonly byId: Map<string, RememberedPrompt>;
  readonly byTip: Map<number, RememberedPrompt[]>;
  bytes: number;
}

const bytesOf = ({ print }: RememberedPrompt): number => print.words.byteLength + ENTRY_BYTES;

/** Prints of recent prompts, within bytes: what is too much goes from the tenant that has most, its oldest first. */
export class PromptMemory {
  readonly #mostBytes: number;
  readonly #tenants = new Map<string, TenantPrompts>();
  #bytes = 0;

  constructor(mostBytes: number) {
    this.#mostBytes = mostBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  named(tenant: string, id: string): RememberedPrompt | undefined {
    return this.#tenants.get(tenant)?.byId.get(id);
  }

  /** Prompts whose newest message another prompt holds, the latest first. */
  held(tenant: string, print: PromptPrint): RememberedPrompt[] {
    const found: RememberedPrompt[] = [];
    const byTip = this.#tenants.get(tenant)?.byTip;
    if (byTip === undefined) return found;
    let looks = 0;
    for (const hash of tipsHeld(print)) {
      found.push(...(byTip.get(hash) ?? []).toReversed());
      if (found.length >= COMPARED_MOST || ++looks === LOOKED_UP_MOST) break;
    }
    return found.slice(0, COMPARED_MOST);
  }

  remember(tenant: string, prompt: RememberedPrompt): void {
    let own = this.#tenants.get(tenant);
    if (own === undefined) {
      own = { byId: new Map(), byTip: new Map(), bytes: 0 };
      this.#tenants.set(tenant, own);
    }
    const before = own.byId.get(prompt.id);
    if (before !== undefined) this.#forget(tenant, own, before);
    this.#tenants.set(tenant, own);
    own.byId.set(prompt.id, prompt);
    const { tip } = prompt.print;
    const alike = own.byTip.get(tip);
    if (alike === undefined) own.byTip.set(tip, [prompt]);
    else alike.push(prompt);
    own.bytes += bytesOf(prompt);
    this.#bytes += bytesOf(prompt);
    while (this.#bytes > this.#mostBytes) this.#forgetOldest();
  }

  #forgetOldest(): void {
    let most: [string, TenantPrompts] | undefined;
    for (const each of this.#tenants) if (most === undefined || each[1].bytes > most[1].bytes) most = each;
    if (most === undefined) return;
    const [oldest] = most[1].byId.values();
    this.#forget(...most, oldest);
  }

  #forget(tenant: string, own: TenantPrompts, prompt: RememberedPrompt): void {
    own.byId.delete(prompt.id);
    const { tip } = prompt.print;
    const alike = (own.byTip.get(tip) ?? []).filter((each) => each !== prompt);
    if (alike.length === 0) own.byTip.delete(tip);
    else own.byTip.set(tip, alike);
    own.bytes -= bytesOf(prompt);
    this.#bytes -= bytesOf(prompt);
    if (own.byId.size === 0) this.#tenants.delete(tenant);
  }
}

/** The types of a change of Anthropic's contract, by what changed; a setting of the template has none. */
const changedTypes = {
  tool: 'tools_changed',
  system: 'system_changed',
  message: 'messages_changed',
} as const;

/** Why a prompt was missed, and the tokens of it that would have been found; undefined where nothing was missed. */
export interface CacheMiss {
  readonly why:
    | 'model_changed'
    | 'system_changed'
    | 'tools_changed'
    | 'messages_changed'
    | 'settings_changed'
    | 'evicted'
    | 'elsewhere'
    | 'never_seen';
  readonly tokens: number;
  /** A change has its cause, the place in the body, and the bytes of the prompt before it. */
  readonly cause?: string;
  readonly path?: string;
  readonly byte?: number;
  /** The server that has it, for `elsewhere`. */
  readonly server?: string;
}

interface DiagnosingGateway {
  readonly prompts: PromptMemory | undefined;
  readonly measures: { missed(miss: CacheMiss): void };
  readonly cutter: PromptCutter;
  readonly tenants: ReadonlyMap<string, string> | undefined;
}

/** A request's prompt as it came. */
interface ArrivedPrompt {
  readonly path: string;
  readonly fields: BodyFields;
  /** Bytes of the body. */
  readonly bytes: number;
  /** Words of the keys of its blocks. */
  readonly words: Uint32Array;
  /** Whether it is the prompt of a server. */
  readonly isExact: boolean;
  readonly salt: string;
}

interface AskedPrompt {
  readonly prompt: PromptInParts;
  readonly words: Uint32Array;
  /** The answer that it is to be compared with, null for none; undefined where the body does not ask. */
  readonly previous: { readonly id: string | null } | undefined;
  readonly tellsHeader: boolean;
}

/** A prompt, and why it is missed, as its client asked. */
export class MissDiagnosis {
  readonly #memory: PromptMemory;
  readonly #measures: DiagnosingGateway['measures'];
  readonly #blockTokens: number;
  readonly #tenant: string;
  /** Null once it is printed. */
  #prompt: PromptInParts | null;
  readonly #words: Uint32Array;
  readonly #asked: AskedPrompt['previous'];
  /** Whether a header of the answer tells it. */
  readonly tellsHeader: boolean;
  #print: PromptPrint | undefined;
  #earlier: RememberedPrompt | undefined;
  #compared: ComparedPrints | undefined;
  /** Leading tokens of the prompt that lay at the server and at the earlier one, -1 where no events tell. */
  #held = -1;
  #heldEarlier = -1;
  #backend: Backend | undefined;
  /** Tokens that the server of the first leg found; undefined without such a leg. */
  #prefillCached: number | undefined;

  private constructor({ prompts, measures, cutter }: DiagnosingGateway, owner: string, asked: AskedPrompt) {
    this.#memory = prompts as PromptMemory;
    this.#measures = measures;
    this.#blockTokens = cutter.blockTokens;
    this.#tenant = owner;
    this.#prompt = asked.prompt;
    this.#words = asked.words;
    this.#asked = asked.previous;
    this.tellsHeader = asked.tellsHeader;
  }

  /**
   * @param tenant whose prompts it is compared with; where the gateway knows none, clients of two keys are two
   * @returns undefined for a body without a prompt, and for a small one whose client does not ask
   */
  static of(
    gateway: DiagnosingGateway,
    request: IncomingMessage,
    tenant: string,
    { path, fields, bytes, words, isExact, salt }: ArrivedPrompt,
  ): MissDiagnosis | undefined {
    if (gateway.prompts === undefined || !promptPaths.has(path)) return undefined;
    const tellsHeader = headerText(request, 'x-tierkv-diagnostics') !== '';
    const { diagnostics } = fields;
    const isAsked = typeof diagnostics === 'object' && diagnostics !== null;
    if (!isAsked && !tellsHeader && bytes < SMALL_BYTES) return undefined;
    const prompt = promptOf(fields);
    if (prompt === undefined || !prompt.isWhole) return undefined;
    const { previous_message_id: id } = (isAsked ? diagnostics : {}) as { previous_message_id?: unknown };
    const previous = isAsked ? { id: typeof id === 'string' ? id : null } : undefined;
    const { cutter, tenants } = gateway;
    const owner = cutter.nameOf(
      JSON.stringify([tenants === undefined ? (keyOf(request) ?? '') : tenant, salt]),
    );
    // a server has no keys of text that the gateway cut in its own way
    const areServers = isExact && cutter.tokenisation === 'tokenizer';
    const known = areServers ? words : new Uint32Array(0);
    return new MissDiagnosis(gateway, owner, { prompt, words: known, previous, tellsHeader });
  }

  /** The body for a server, which does not see what the gateway was asked. */
  bodyOf(body: Buffer): Buffer {
    if (!this.tellsBody) return body;
    const isAsked = (name: string): boolean => name === 'diagnostics';
    return Buffer.from(withMembers(withoutMark(body.toString('utf8')), isAsked, {}));
  }

  /** Whether the client asks in the body, so that the answer's body tells it. */
  get tellsBody(): boolean {
    return this.#asked !== undefined;
  }

  /** It goes to a server. What there is to compare is compared a little later, while that works. */
  sent(backend: Backend): void {
    this.#backend = backend;
    this.#prefillCached = undefined;
    setImmediate(() => this.#examine());
  }

  /** The server that computed the prompt for another has said how many tokens it found. */
  prefilled(cachedTokens: number): void {
    this.#prefillCached = cachedTokens;
  }

  #examine(): void {
    const backend = this.#backend;
    if (backend === undefined) return;
    if (this.#prompt !== null) this.#compare(this.#prompt);
    const held = (at: Backend): number => {
      const blocks = at.book?.leadingBlocks(this.#words);
      return blocks === undefined || this.#words.length === 0 ? -1 : blocks * this.#blockTokens;
    };
    this.#held = held(backend);
    const earlier = this.#earlier?.backend;
    this.#heldEarlier = earlier === undefined || earlier === backend ? -1 : held(earlier);
  }

  #compare(prompt: PromptInParts): void {
    this.#prompt = null;
    const paths = prompt.parts.map(({ path }) => path);
    const print = printOf(prompt);
    this.#print = print;
    const compared = (earlier: RememberedPrompt): ComparedPrints =>
      comparePrints(earlier.print, print, (part) => paths[part]);
    if (this.#asked !== undefined && this.#asked.id !== null) {
      this.#earlier = this.#memory.named(this.#tenant, this.#asked.id);
      if (this.#earlier !== undefined) this.#compared = compared(this.#earlier);
      return;
    }
    const gain = ({ commonBytes, difference }: ComparedPrints): number =>
      commonBytes + (difference?.keptBytes ?? 0);
    for (const earlier of this.#memory.held(this.#tenant, print)) {
      const now = compared(earlier);
      if (now.difference !== undefined && !now.isLoss) continue;
      if (this.#compared !== undefined && gain(this.#compared) >= gain(now)) continue;
      this.#earlier = earlier;
      this.#compared = now;
    }
  }

  /** The fate of the prompt's cached beginning, by what the answer has said so far. */
  miss(meter: AnswerMeter): CacheMiss | undefined {
    const { promptTokens } = meter;
    const cachedTokens = this.#prefillCached ?? meter.cachedTokens;
    const [print, compared, earlier] = [this.#print, this.#compared, this.#earlier];
    if (print === undefined) return undefined;
    if (compared === undefined || earlier === undefined) return { why: 'never_seen', tokens: 0 };
    const perToken = promptTokens > 0 && print.bytes > 0 ? print.bytes / promptTokens : BYTES_A_TOKEN;
    const unfound = promptTokens > 0 && cachedTokens >= 0 ? promptTokens - cachedTokens : Infinity;
    const { difference, commonBytes } = compared;
    if (difference !== undefined) {
      const { kind, cause, path, promptByte: byte, leftBytes, keptBytes } = difference;
      // what a client names is what it wants to go on from
      const lost = this.#asked === undefined ? keptBytes : leftBytes;
      const tokens = Math.min(unfound, Math.round(lost / perToken));
      if (tokens === 0) return undefined;
      const setting = cause === 'model' ? 'model_changed' : 'settings_changed';
      return { why: kind === 'setting' ? setting : changedTypes[kind], tokens, cause, path, byte };
    }
    const cached = cachedTokens >= 0 ? cachedTokens : this.#held;
    const common = Math.round(commonBytes / perToken);
    const tokens = Math.min(unfound, common - cached);
    if (cached < 0 || cached >= FOUND_SHARE * common || tokens < EVICTED_TOKENS) return undefined;
    const isThere = this.#heldEarlier === -1 || this.#heldEarlier >= FOUND_SHARE * common;
    const isElsewhere = this.#backend !== earlier.backend && isThere;
    return isElsewhere
      ? { why: 'elsewhere', tokens, server: earlier.backend.id }
      : { why: 'evicted', tokens };
  }

  /** The member `diagnostics` of an answer: Anthropic's contract, with what it has no words for beside it. */
  answer(miss: CacheMiss | undefined): object | null {
    // a first turn has nothing that its client would have it compared with
    if (miss === undefined || this.#asked?.id === null) return null;
    const { why: type, tokens } = miss;
    const reason =
      type.endsWith('_changed') && type !== 'settings_changed'
        ? { type, cache_missed_input_tokens: tokens }
        : { type: type === 'never_seen' ? 'previous_message_not_found' : 'unavailable' };
    return { cache_miss_reason: reason, tierkv: miss };
  }

  /** The whole answer has come: why the prompt was missed is counted, and later ones are compared with it. @param otherwise its id where it has none */
  answered(meter: AnswerMeter, otherwise: string): void {
    const miss = this.miss(meter);
    if (miss !== undefined) this.#measures.missed(miss);
    const [print, backend] = [this.#print, this.#backend];
    if (print === undefined || backend === undefined) return;
    this.#memory.remember(this.#tenant, { id: meter.id === '' ? otherwise : meter.id, print, backend });
  }
}

/** The value of the header that tells a miss. */
export function headerOf(miss: CacheMiss | undefined): string {
  if (miss === undefined) return 'none';
  const { why, ...more } = miss;
  return [why, ...Object.entries(more).map(([name, value]) => `${name}=${value}`)].join('; ');
}
