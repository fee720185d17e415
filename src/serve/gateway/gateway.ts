/**
 * A gateway: an OpenAI-compatible reverse proxy whose decisions are those of the simulator's control plane, on a real
 * clock and real reports. This file holds what is between the socket and the decisions: inputs get their time here, go
 * to the log and to the core, and decisions find the request that waits for them.
 */

import { randomBytes } from 'node:crypto';
import { operatorPortOf } from '../../observe/dashboard/operatorAccess.ts';
import { type MeasuredMetric, measuredOf } from '../../observe/metrics/metric.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { BackendPool } from './backends.ts';
import { type FoundTemplate, findChatTemplate } from './chatPrompts.ts';
import {
  type CheckedGateway,
  checkGateway,
  type GatewayConfig,
  type GatewayLimits,
  planReadsKeys,
} from './config.ts';
import { GatewayCore } from './core.ts';
import { decideAgain, logHeader, type ReplayResult } from './decisionLog.ts';
import { PromptMemory } from './diagnosis.ts';
import { GatewayMeasures, gatewayMetrics } from './gatewayMetrics.ts';
import { LineFile } from './lineFile.ts';
import { OperatorServer } from './operators.ts';
import { bindPlan, idleSlots, movedReaders } from './plan.ts';
import { loadTokenizer, PromptCutter, requireSecret, TenantSalts } from './prompts.ts';
import type { GatewayOutput, Tell } from './records.ts';
import { Inbox, type ServedGateway } from './served.ts';
import { GatewayServer } from './server.ts';
import { ShadowCounts } from './shadowCounts.ts';
import { countMore, type GatewayCounts } from './status.ts';
import { type TracedRequest, traceLine } from './trace.ts';

const saltsMissed =
  'servers name all their blocks by a salt, as where they keep tenants apart, and requests name none: no prompt finds a ' +
  'block of KV events. Give the API keys of the tenants (tenants), or let clients send cache_salt';

/** Reasons for the end of an answer that are counted by name: a server may make up any number. */
const UNKNOWN_ENDS_MOST = 16;

const unknownEndsNote = (reasons: Iterable<string>): string =>
  `servers end answers for reasons that are not known here (${[...reasons].join(', ')}): these answers count as completed`;

/** Bytes of a part of log or trace: some million requests. */
const PART_BYTES = 2 ** 30;

/** An OpenAI-compatible gateway before real servers, with the control plane of the simulator. */
export class Gateway implements ServedGateway, AsyncDisposable {
  readonly pool: BackendPool;
  readonly cutter: PromptCutter;
  readonly checked: CheckedGateway;
  readonly shadows: ShadowCounts;
  readonly prompts: PromptMemory | undefined;
  readonly counts: GatewayCounts = {
    requests: 0,
    completed: 0,
    invalid: 0,
    backendErrors: 0,
    rejected: 0,
    unroutable: 0,
    failed: 0,
    retries: 0,
    clientsLeft: 0,
    brokenAnswers: 0,
    chatsByText: 0,
    promptsMiscounted: 0,
    prefills: 0,
    prefillsFailed: 0,
    fallbacks: new Map(),
    unknownEnds: new Map(),
    refused: new Map(),
  };
  /** Undefined without a tokenizer. */
  readonly #chats: FoundTemplate | undefined;
  readonly measures: GatewayMeasures = new GatewayMeasures();
  /** Its metrics, for `prometheus` and `openTelemetry` of `tierkv/observe`; its own `/metrics` has them too. */
  readonly measured: readonly MeasuredMetric[] = measuredOf(gatewayMetrics, this);
  readonly #core: GatewayCore;
  readonly #log: LineFile | null;
  readonly #trace: LineFile | null;
  readonly #inboxes = new Map<number, Inbox>();
  readonly #startMs: number = performance.now();
  readonly #readsKeys: boolean;
  #nowUs = 0;
  #numbers = 0;
  #timer: NodeJS.Timeout | undefined;
  #timerUs = Infinity;
  #server: GatewayServer | undefined;
  #operators: OperatorServer | undefined;
  #closing: Promise<void> | undefined;

  private constructor(checked: CheckedGateway, core: (emit: (output: GatewayOutput) => void) => GatewayCore) {
    const { config, plan, backendBlocks } = checked;
    this.checked = checked;
    const { tokenizer } = config;
    this.#chats = tokenizer === undefined ? undefined : findChatTemplate(tokenizer);
    this.cutter = new PromptCutter(
      plan.blockTokens,
      requireSecret(config.keySecret ?? randomBytes(32)),
      tokenizer === undefined ? null : loadTokenizer(tokenizer),
      this.#chats?.template,
      new TenantSalts(config.tenants?.values(), config.tenantsApart, () => config.noted?.(saltsMissed)),
    );
    this.#readsKeys = planReadsKeys(plan);
    this.prompts =
      config.diagnostics === true ? new PromptMemory(checked.limits.diagnosticsBytes) : undefined;
    this.shadows = new ShadowCounts(plan.shadows.map(({ name }) => name));
    const poll = {
      intervalMs: config.pollMs ?? 500,
      timeoutMs: 2000,
      capacityBlocks: backendBlocks,
      blockTokens: plan.blockTokens,
      maxSequences: plan.maxSequences,
      cutter: this.cutter,
      findsPrompts: config.diagnostics === true,
      movedReaders: movedReaders(plan),
    };
    this.pool = new BackendPool(config.backends, poll, (input) => this.tell(input));
    this.#core = core((output) => this.#decided(output));
    const bounds = { partBytes: config.partBytes ?? PART_BYTES, keepParts: config.keepParts ?? 0 };
    const run = { run: randomBytes(8).toString('hex'), began: new Date() };
    const header = (part: number): object => logHeader(plan, this.cutter, { ...run, part });
    this.#log = config.log === undefined ? null : new LineFile(config.log, { ...bounds, header });
    this.#trace = config.trace === undefined ? null : new LineFile(config.trace, bounds);
  }

  /**
   * Decides a recorded run again, and says which decisions came out otherwise.
   * @param log path of the file that `log` of a configuration named
   * @throws TKV_INPUT for a file that is not a log; TKV_CONFIG for a plan that cannot be made
   */
  static decideAgain(log: string): Promise<ReplayResult> {
    return decideAgain(log);
  }

  /**
   * Opens a gateway: it listens, and its backends have been asked once.
   * @throws TKV_CONFIG with the field at fault; PolicyError for a program that does not load; TKV_IO for a port or a file
   * that cannot be had
   */
  static async open(config: GatewayConfig): Promise<Gateway> {
    checkInputs({ config }, { config: is.fields({ backends: is.array() }) });
    const checked = checkGateway(config);
    const bound = await bindPlan(checked.plan);
    const gateway = new Gateway(checked, (emit) => new GatewayCore(bound, emit));
    try {
      await gateway.pool.start();
      for (const { id, lacks } of gateway.pool.backends) {
        if (lacks === undefined) continue;
        throw configError(
          'policy',
          `needs what ${id} does not report: ${lacks}`,
          'Use a policy without that field, or servers on tierkv.',
        );
      }
      const { host = '127.0.0.1', port = 8080, operatorHost = '127.0.0.1' } = config;
      const operatorPort = config.operatorPort ?? operatorPortOf(port);
      gateway.#operators = await OperatorServer.listen(gateway, config.adminKey, operatorHost, operatorPort);
      gateway.#server = await GatewayServer.listen(gateway, host, port);
    } catch (error) {
      await gateway.close();
      throw error;
    }
    return gateway;
  }

  /** Where it listens: `http://host:port`. */
  get url(): string {
    if (this.#server === undefined) {
      throw new TierKVError('TKV_STATE', 'the gateway does not listen. Open it first.', { field: 'url' });
    }
    return this.#server.url;
  }

  /** Where its operator finds `/metrics` and `/gateway/...`. */
  get operatorUrl(): string {
    if (this.#operators === undefined) {
      throw new TierKVError('TKV_STATE', 'the gateway does not listen. Open it first.', {
        field: 'operatorUrl',
      });
    }
    return this.#operators.url;
  }

  /** Ends the parts of log and trace that are written, and begins new ones: for who moves or packs them away. */
  turnFiles(): void {
    this.#log?.turn();
    this.#trace?.turn();
  }

  /** Stops taking requests, waits for what is under way as long as the limit says, and closes its files. */
  async close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    await this.#server?.close(this.checked.limits.graceMs);
    await this.#operators?.close();
    await this.pool.close();
    clearTimeout(this.#timer);
    await this.#log?.close();
    await this.#trace?.close();
  }

  //  Limits that the server asks for.

  get limits(): GatewayLimits {
    return this.checked.limits;
  }

  get tenants(): ReadonlyMap<string, string> | undefined {
    return this.checked.config.tenants;
  }

  /** Whether prompts of two tenants share no block. */
  get tenantsApart(): boolean {
    return this.cutter.salts.areApart;
  }

  get forwardHeaders(): ReadonlySet<string> {
    return this.checked.forwardHeaders;
  }

  get sendsPriority(): boolean {
    return this.checked.config.sendPriority === true;
  }

  get tokenisation(): string {
    return this.cutter.tokenisation;
  }

  get chats(): string {
    return this.cutter.chats;
  }

  /** How prompts are cut, in a line for an operator. */
  get cutting(): string {
    if (this.#chats === undefined) return 'prompts are cut by text, four bytes a token, and so are chats';
    if (this.#chats.template !== null)
      return "prompts are cut by the tokenizer, chats as the model's template renders them";
    return `prompts are cut by the tokenizer; chats as the text of their messages, since ${this.#chats.why}`;
  }

  get policy(): string {
    const { bundle, control } = this.checked.plan;
    return bundle === null ? `routing ${control.routing.policy}` : (bundle.name ?? 'a bundle without a name');
  }

  get openRequests(): number {
    return this.#core.openRequests;
  }

  /** Connections of clients, with a request or without. */
  get openConnections(): number {
    return this.#server?.openConnections ?? 0;
  }

  /** Whether a policy, the trace or a look at servers' caches has use for the keys of a prompt. */
  get wantsKeys(): boolean {
    const finds =
      this.prompts !== undefined && this.checked.config.backends.some(({ events }) => events !== undefined);
    return this.#readsKeys || this.#trace !== null || finds;
  }

  /** A number for a request, and where its decisions come. */
  register(): { readonly number: number; readonly inbox: Inbox } {
    const number = this.#numbers++;
    const inbox = new Inbox();
    this.#inboxes.set(number, inbox);
    this.counts.requests++;
    return { number, inbox };
  }

  forget(number: number): void {
    this.#inboxes.delete(number);
  }

  /** Whole microseconds since the start; they never go back. */
  nowUs(): number {
    this.#nowUs = Math.max(this.#nowUs, Math.floor((performance.now() - this.#startMs) * 1000));
    return this.#nowUs;
  }

  /** Something happened: it is logged, decided on, and the next waking is set. */
  readonly tell: Tell = (input) => {
    const timed = { ...input, atUs: this.nowUs() };
    this.#log?.add(timed);
    this.#core.accept(timed);
    this.#setTimer();
  };

  /** Seconds after which a client that was turned away may come again: how long what waits takes at the pace of now. */
  retryAfterS(): number {
    const { pending, throughput } = this.#core.traffic;
    const seconds = throughput > 0 ? Math.ceil(pending / throughput) : 1;
    return Math.min(60, Math.max(1, seconds));
  }

  /** Counts what became of a request, and writes it. */
  record(record: TracedRequest): void {
    this.measures.see(record);
    this.#countEnd(record.unknownEnd);
    this.#trace?.add(traceLine(record, this.checked.plan.blockTokens));
  }

  #countEnd(reason: string): void {
    if (reason === '') return;
    const { unknownEnds } = this.counts;
    const isFirst = unknownEnds.size === 0;
    const isNamed = unknownEnds.has(reason) || unknownEnds.size < UNKNOWN_ENDS_MOST;
    countMore(unknownEnds, isNamed ? reason : 'other');
    if (isFirst) this.checked.config.noted?.(unknownEndsNote(unknownEnds.keys()));
  }

  /** Notes on these policies for the operator, a line each. */
  get notes(): readonly string[] {
    const { plan, config } = this.checked;
    const notes: string[] = [];
    for (const [what, bundle] of [
      ['the policy', plan.bundle],
      ...plan.shadows.map((shadow) => [`shadow ${shadow.name}`, shadow.bundle] as const),
    ] as const) {
      const idle = bundle === null ? [] : idleSlots(bundle);
      if (idle.length > 0) notes.push(`servers decide ${idle.join(', ')}: it has no effect in ${what}`);
    }
    const blind = this.#core.readsCaches;
    if (blind.length > 0 && !config.backends.some(({ events }) => events !== undefined)) {
      const who = blind.map((name) => (name === '' ? 'the policy' : `shadow ${name}`)).join(', ');
      notes.push(
        `${who} reads what servers hold in their caches, and no server publishes KV events: all caches look empty`,
      );
    }
    if (this.wantsKeys && this.cutter.salts.areUnknown) {
      notes.push(
        'tenants are taken to share blocks until KV events say otherwise: say tenantsApart where servers keep them apart',
      );
    }
    if (this.cutter.salts.areMissed) notes.push(saltsMissed);
    const { unknownEnds } = this.counts;
    if (unknownEnds.size > 0) notes.push(unknownEndsNote(unknownEnds.keys()));
    for (const { id, metrics } of this.pool.backends) {
      const blockTokens = metrics?.blockTokens ?? 0;
      if (blockTokens === 0 || blockTokens === plan.blockTokens) continue;
      notes.push(
        `${id} has blocks of ${blockTokens} tokens, and prompts are cut into blocks of ${plan.blockTokens}`,
      );
    }
    return notes;
  }

  /** Records that the log or the trace lost, in words. */
  get losses(): readonly string[] {
    return [this.#log, this.#trace].flatMap((file) =>
      file?.failure === undefined ? [] : [`${file.path}: ${file.failure}, ${file.lost} lines are lost`],
    );
  }

  #decided(output: GatewayOutput): void {
    this.#log?.add(output);
    if (output.out === 'fallback') {
      const name = `${output.policy === '' ? '' : `${output.policy} `}${output.slot} ${output.kind}`;
      countMore(this.counts.fallbacks, name);
      return;
    }
    if (output.out === 'admission' || output.out === 'route') this.shadows.see(output);
    this.#inboxes.get(output.request)?.put(output);
  }

  #setTimer(): void {
    const dueUs = this.#core.nextWakeUs;
    if (dueUs === this.#timerUs) return;
    clearTimeout(this.#timer);
    this.#timerUs = dueUs;
    if (dueUs === Infinity) return;
    this.#timer = setTimeout(
      () => {
        this.#timerUs = Infinity;
        // a timer may come a little early
        if (this.nowUs() >= this.#core.nextWakeUs) this.tell({ in: 'wake' });
        else this.#setTimer();
      },
      Math.min(2 ** 30, Math.max(0, Math.ceil((dueUs - this.nowUs()) / 1000))),
    );
    this.#timer.unref();
  }
}
