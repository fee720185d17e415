import { BlockHistory, type HistoryBounds, type RememberedRequest } from '../../embed/blockHistory.ts';
import {
  type BlockLife,
  type CacheExplanation,
  explainKeys,
  explainRequest,
  lifeOf,
  type Naming,
  type Twin,
} from '../../embed/explanation.ts';
import {
  SchedulerDecision,
  SchedulerInput,
  type SchedulerSink,
} from '../../runtime/batching/schedulerSink.ts';
import { nearestName } from '../../runtime/errors.ts';
import {
  type DecisionOp,
  type DecisionSink,
  LogReader,
  LogReplayer,
  TierKVError,
  tierName,
} from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { DecisionOp as Decision } from '../../runtime/log/decisionSink.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { AskedPrefix } from './prefix.ts';

/** Bounds of a log's history: a process of some 4 GB holds it. */
const logBounds: HistoryBounds = { blocks: 4_194_304, requestBlocks: 8_388_608 };

/** Decisions that end the sequence of a request. */
const givesUp: ReadonlySet<SchedulerDecision> = new Set([
  SchedulerDecision.FINISH,
  SchedulerDecision.PREEMPT,
  SchedulerDecision.YIELD,
]);

/**
 * Which sequence is which request of a scheduler: of a request that joins, or waits for its loads, the sequence that opened
 * just before in the same step. One that waited for its loads joins with the sequence that it has: what opened before then
 * is another's, such as of a request that is announced or found no room.
 */
export class RequestNames implements DecisionSink {
  readonly #ids: Map<number, string> = new Map();
  readonly #ofSequence: Map<number, string> = new Map();
  /** Numbers of requests that have a sequence. */
  readonly #holding: Set<number> = new Set();
  readonly #named: (sequence: number, id: string) => void;
  #opened = -1;

  /** @param named told of each sequence whose request becomes known */
  constructor(named: (sequence: number, id: string) => void = () => {}) {
    this.#named = named;
  }

  requestOf(sequence: number): string | undefined {
    return this.#ofSequence.get(sequence);
  }

  input(): void {}

  decision(op: DecisionOp, sequence: number): void {
    if (op === Decision.MATCH) this.#opened = sequence;
  }

  scheduler(): SchedulerSink {
    return {
      input: (op, _nowUs, number, _b, _c, _d, _e, added) => {
        this.#opened = -1;
        if (op === SchedulerInput.ADD && added !== undefined) this.#ids.set(number, added.id);
      },
      decision: (op, number) => {
        if (op === SchedulerDecision.FINISH) this.#ids.delete(number);
        if (givesUp.has(op)) this.#holding.delete(number);
        const begins = op === SchedulerDecision.ADMIT || op === SchedulerDecision.DEFER;
        const id = this.#ids.get(number);
        if (!begins || this.#opened === -1 || id === undefined || this.#holding.has(number)) return;
        this.#holding.add(number);
        this.#ofSequence.set(this.#opened, id);
        this.#named(this.#opened, id);
        this.#opened = -1;
      },
    };
  }
}

/** Explains from a decision log why requests found what they found. */
export class LogExplainer {
  readonly #history: BlockHistory;
  readonly #names: RequestNames;
  readonly #path: string;

  /**
   * Reads the whole log.
   * @param path the log's name in errors
   * @param follow four words of a block whose life is asked for
   * @throws TKV_INPUT naming the line of a log that is damaged, cut or of another version
   */
  constructor(
    lines: Iterable<string>,
    path: string,
    follow?: Uint32Array,
    bounds: HistoryBounds = logBounds,
  ) {
    checkInputs(
      { lines, path, follow, bounds },
      {
        lines: is.iterable(),
        path: is.name(),
        follow: is.optional(is.bytes()),
        bounds: is.optional(is.object()),
      },
    );
    this.#path = path;
    const log = new LogReader(path);
    this.#names = new RequestNames((sequence, id) => {
      const request = history?.request(sequence);
      if (request !== undefined) request.id = id;
    });
    let history: BlockHistory | undefined;
    let replayer: LogReplayer | undefined;
    for (const line of lines) {
      const input = log.read(line);
      if (replayer === undefined) {
        replayer = new LogReplayer(log, this.#names);
        history = new BlockHistory(replayer.manager, bounds);
        if (follow !== undefined) history.follow(follow);
      }
      if (input !== undefined) replayer.apply(input);
    }
    log.finish();
    this.#history = history as BlockHistory;
  }

  get requestCount(): number {
    return this.#history.requestCount;
  }

  /**
   * @param asked the id of a request, or the number of a sequence
   * @throws TKV_UNKNOWN_ID for one that the log does not have
   */
  request(asked: string): CacheExplanation {
    return explainRequest(this.#history, this.#find(asked), this.#naming());
  }

  /** The life of the block that was followed. */
  life(key: Uint32Array): BlockLife {
    return lifeOf(this.#history, key, this.#naming());
  }

  /** Explains a request for the prefix at the end of the log. */
  prefix(prefix: AskedPrefix): CacheExplanation {
    const twinOf = (block: number): Twin | undefined => {
      for (const { cause, name, keys } of prefix.others) {
        const facts = this.#history.block(keys, block * 4);
        if (facts === undefined || facts.sealedBy === -1) continue;
        const { byTier } = this.#history.manager.lookup(keys, block + 1);
        const found = byTier.reduce((sum, count) => sum + count, 0) > block;
        return { cause, name, tier: found ? this.#tierOf(byTier) : null };
      }
      return undefined;
    };
    const { keys, blocks, tenant } = prefix;
    return explainKeys(this.#history, { keys, blocks, limit: blocks }, tenant, { ...this.#naming(), twinOf });
  }

  /** The slowest of the tiers that have some of it. */
  #tierOf(byTier: readonly number[]): Twin['tier'] {
    const last = byTier.findLastIndex((count) => count > 0);
    return last === -1 ? null : tierName(this.#history.manager.inspect.tiers[last]);
  }

  #find(asked: string): RememberedRequest {
    let found: RememberedRequest | undefined;
    for (const request of this.#history.requests) if (request.id === asked) found = request;
    const number = Number(asked);
    if (found === undefined && Number.isSafeInteger(number)) found = this.#history.request(number);
    if (found !== undefined) return found;
    const ids: string[] = [];
    for (const { id } of this.#history.requests) if (id !== undefined && ids.length < 10_000) ids.push(id);
    const nearest = nearestName(asked, ids);
    const hint = nearest === undefined ? '' : ` Did you mean '${nearest}'?`;
    const has =
      ids.length === 0
        ? `The log has sequences 1 to ${this.#lastSequence()}.`
        : `The log has ${this.requestCount} sequences, such as ${ids.slice(0, 3).join(', ')}.`;
    throw new TierKVError('TKV_UNKNOWN_ID', `request ${asked} is not in ${this.#path}.${hint} ${has}`, {
      field: 'request',
    });
  }

  #lastSequence(): number {
    let last = 0;
    for (const { sequence } of this.#history.requests) last = sequence;
    return last;
  }

  #naming(): Naming {
    return {
      tenantOf: (owner) => (owner <= 0 ? null : `owner ${owner}`),
      requestOf: (sequence) => this.#names.requestOf(sequence),
      blockTokens: null,
    };
  }
}
