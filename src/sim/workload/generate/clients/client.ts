/**
 * What every client stream needs: its place in the list, its random stream, its lengths, its prefix, and the
 * drawing of one turn. The order of draws is upstream's: lengths of input and output, then input tokens, then
 * output tokens. Tokens are passed over, not kept.
 */

import { TierKVError } from '../../../../runtime/errors.ts';
import {
  type GoRandom,
  type LengthSampler,
  lengthSampler,
  type PooledStream,
  StreamPool,
} from '../../../random/index.ts';
import type { ModalityTokens, RequestOrigin, TokenSpan, WorkloadRequest } from '../../request.ts';
import type { ActiveWindow, ClientSpec, ModalitySpec, MultimodalSpec } from '../../spec/types.ts';
import { VOCABULARY } from '../../tokens/tokens.ts';
import { type ChosenPrefix, PrefixChoice, PromptLengths, promptLengths } from '../behavior/index.ts';
import type { Prefix } from '../prefix.ts';
import type { HeldMemory } from './heldMemory.ts';

/** A source of one client's requests in order of arrival; ids are given after merging. */
export interface ClientStream {
  next(): WorkloadRequest | undefined;
}

/** One drawn turn: new input and output, where they lie in the client's stream. */
export interface Turn {
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly input: TokenSpan;
  readonly output: TokenSpan;
  readonly modalities: ModalityTokens | null;
}

export class Client {
  readonly index: number;
  readonly spec: ClientSpec;
  readonly origin: RequestOrigin;
  readonly prefix: Prefix;
  readonly horizonUs: number;
  readonly seed: bigint;
  /** What all clients of the stream hold together. */
  readonly held: HeldMemory;
  readonly #pool: StreamPool;
  readonly #stream: PooledStream;
  readonly inputLength: LengthSampler;
  readonly outputLength: LengthSampler;
  readonly #drawModalities: ((random: GoRandom) => ModalityTokens) | undefined;
  readonly #choice: PrefixChoice | null;

  /** @param workloadSeed names the streams of prefixes that clients choose among */
  constructor(
    index: number,
    spec: ClientSpec,
    prefix: Prefix,
    seed: bigint,
    workloadSeed: bigint,
    horizonUs: number,
    pool: StreamPool,
    held: HeldMemory,
  ) {
    this.held = held;
    this.index = index;
    this.spec = spec;
    this.origin = originOf(spec);
    this.prefix = prefix;
    this.horizonUs = horizonUs;
    this.seed = seed;
    this.#pool = pool;
    this.#stream = StreamPool.stream(seed);
    this.inputLength = promptLengths(lengthSampler(spec.inputLength), spec);
    this.outputLength = lengthSampler(spec.outputLength);
    this.#choice =
      spec.prefixes === undefined ? null : new PrefixChoice(spec.prefixes, this.origin, workloadSeed);
    this.#drawModalities = spec.multimodal === undefined ? undefined : modalityDrawer(spec.multimodal);
  }

  /** The generator of this client, at its place; valid until another client draws. */
  get random(): GoRandom {
    return this.#pool.seat(this.#stream);
  }

  /** What the next request or session begins with. */
  prefixOf(random: GoRandom): ChosenPrefix {
    return this.#choice === null ? this : this.#choice.choose(random);
  }

  /** An arrival comes so long after the one before. */
  arrivedAfter(gapUs: number): void {
    if (this.inputLength instanceof PromptLengths) this.inputLength.after(gapUs);
  }

  /** Draws lengths and passes over the tokens of one turn. */
  drawTurn(random: GoRandom, inputLength: LengthSampler, outputLength: LengthSampler): Turn {
    const inputTokens = inputLength.next(random);
    const outputTokens = outputLength.next(random);
    return spanTurn(this.seed, random, inputTokens, outputTokens);
  }

  /**
   * As `drawTurn`, with a modality mix as input where the client has one: then the output length follows the
   * input.
   */
  drawRequest(random: GoRandom): Turn {
    if (this.#drawModalities === undefined) return this.drawTurn(random, this.inputLength, this.outputLength);
    const modalities = this.#drawModalities(random);
    const total = modalities.text + modalities.image + modalities.audio + modalities.video;
    const inputTokens = Math.max(1, total);
    const position = random.position;
    random.skipIntn(inputTokens, VOCABULARY);
    const outputTokens = this.outputLength.next(random);
    const outputPosition = random.position;
    random.skipIntn(outputTokens, VOCABULARY);
    return {
      inputTokens,
      outputTokens,
      input: { seed: this.seed, position, tokens: inputTokens },
      output: { seed: this.seed, position: outputPosition, tokens: outputTokens },
      modalities,
    };
  }
}

/** Passes over the tokens of a turn whose lengths are drawn. */
export function spanTurn(seed: bigint, random: GoRandom, inputTokens: number, outputTokens: number): Turn {
  const position = random.position;
  random.skipIntn(inputTokens, VOCABULARY);
  const outputPosition = random.position;
  random.skipIntn(outputTokens, VOCABULARY);
  return {
    inputTokens,
    outputTokens,
    input: { seed, position, tokens: inputTokens },
    output: { seed, position: outputPosition, tokens: outputTokens },
    modalities: null,
  };
}

export function originOf(spec: ClientSpec): RequestOrigin {
  return {
    clientId: spec.id,
    tenantId: spec.tenantId,
    sloClass: spec.sloClass,
    model: spec.model,
    adapter: spec.adapter,
    sloTargetUs: spec.sloTargetUs,
    prefixGroup: spec.prefixGroup,
  };
}

/** Most images, sounds or films of one request. */
const maxModalityParts = 10_000;

function tooManyParts(parts: number): TierKVError {
  return new TierKVError(
    'TKV_INPUT',
    `multimodal: a count distribution drew ${parts} parts of one request, more than ` +
      `${maxModalityParts}. Give it a max`,
    { field: 'multimodal' },
  );
}

function modalityDrawer(spec: MultimodalSpec): (random: GoRandom) => ModalityTokens {
  const text = spec.text === undefined ? undefined : lengthSampler(spec.text);
  const drawer = (modality: ModalitySpec | undefined): ((random: GoRandom) => number) => {
    if (modality === undefined) return () => 0;
    const count = lengthSampler(modality.count);
    const length = lengthSampler(modality.length);
    return (random) => {
      let tokens = 0;
      const parts = count.next(random);
      if (parts > maxModalityParts) throw tooManyParts(parts);
      for (let left = parts; left > 0; left--) tokens += length.next(random);
      return tokens;
    };
  };
  const image = drawer(spec.image);
  const audio = drawer(spec.audio);
  const video = drawer(spec.video);
  return (random) => ({
    text: text?.next(random) ?? 0,
    image: image(random),
    audio: audio(random),
    video: video(random),
  });
}

const maxMisses = 20_000_000;

/**
 * Refuses to go on drawing arrivals of which none falls into a window.
 * @param misses how many have missed, one after the other. @throws {TierKVError} TKV_INPUT naming the client.
 */
export function requireHits(misses: number, spec: ClientSpec): void {
  if (misses <= maxMisses) return;
  throw new TierKVError(
    'TKV_INPUT',
    `client "${spec.id.slice(0, 100)}": ${maxMisses} arrivals in a row fall outside its windows. ` +
      'Lower its rate, or move the windows together',
    { field: 'lifecycle.windows' },
  );
}

export function isActive(timeUs: number, windows: readonly ActiveWindow[]): boolean {
  if (windows.length === 0) return true;
  return windows.some((window) => timeUs >= window.startUs && timeUs < window.endUs);
}

/** The end of the last window; Infinity for a client that is always on. */
export function lastEndUs(windows: readonly ActiveWindow[]): number {
  if (windows.length === 0) return Infinity;
  return windows.reduce((last, window) => Math.max(last, window.endUs), -Infinity);
}
