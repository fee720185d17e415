/**
 * One request on its way: decided about, sent, perhaps sent again, answered. It ends in one of the outcomes of the trace, and
 * whatever way it ends, the decisions are told.
 */

import type http from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { runningClock } from '../../backends/runningClock.ts';
import { TierKVError } from '../../runtime/errors.ts';
import type { EndKind } from '../../sim/control/controlPlane.ts';
import { AnswerMeter } from './answerMeter.ts';
import {
  AttemptFailed,
  type BegunAnswer,
  beginAnswer,
  judged,
  passOn,
  retriedStatus,
  trueStatus,
} from './answers.ts';
import { chatPaths, messagesPath, promptPaths } from './apis.ts';
import type { Backend } from './backend.ts';
import { mixed } from './backends.ts';
import type { GatewayLimits } from './config.ts';
import { mustBeJson, withoutControl } from './controlFields.ts';
import { diagnosed } from './diagnosedAnswers.ts';
import { MissDiagnosis } from './diagnosis.ts';
import {
  type ClientPatience,
  forwardedHeaders,
  headerText,
  patienceOf,
  sendError,
  sendHead,
} from './heads.ts';
import { type ReadPrompt, readPrompt } from './prompts.ts';
import { type GatewayOutput, keysText } from './records.ts';
import type { Inbox, ServedGateway } from './served.ts';
import type { HeldAttempt } from './standing.ts';
import { endOf, type TraceOutcome } from './trace.ts';
import { decodeBody, prefillBody, transferParamsIn, withField } from './twoLegs.ts';

export class Passage {
  readonly #gateway: ServedGateway;
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #path: string;
  #body: Buffer;
  readonly #tenant: string;
  readonly #number: number;
  readonly #inbox: Inbox;
  readonly #id: string;
  readonly #arrivalUs: number;
  readonly #patience: ClientPatience;
  readonly #beganMs: number = runningClock.nowMs();
  /** Ends the alarm that gives it up when its client waits no more. */
  #cancelTimer = (): void => {};
  #prompt: Omit<ReadPrompt, 'fields'> | undefined;
  #diagnosis: MissDiagnosis | undefined;
  /** Model and adapter of the request, as decisions know them. */
  #named: { readonly model: string; readonly adapter: string } = { model: '', adapter: '' };
  #promptTokens = 1;
  /** Whether that is what the server should count. */
  #countsTokens = false;
  #words: Uint32Array = new Uint32Array(0);
  /** Where the decisions believe it to be. */
  #state: 'waiting' | 'routed' | 'ended' = 'waiting';
  #upstream: http.ClientRequest | undefined;
  /** When the first token of a streamed answer came, -1 before. */
  #firstUs = -1;
  #retries = 0;
  /** Whether the time for all of it is over. */
  #isLate = false;
  #backend = '';
  #prefillBackend = '';
  /** Tokens of the prompt that it found, -1 where it did not say. What the other one found came from there. */
  #prefillCached = -1;
  #failure: { readonly status: number; readonly code: string; readonly message: string } | undefined;
  /** An answer that was not passed on, because another backend might give a better one. */
  #refused: BegunAnswer | undefined;
  /** A backend that answered with an error of its own, before another one was asked. */
  #suspect: Backend | undefined;

  constructor(
    gateway: ServedGateway,
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    body: Buffer,
    tenant: string,
  ) {
    this.#gateway = gateway;
    this.#request = request;
    this.#response = response;
    this.#path = path;
    this.#body = body;
    this.#tenant = tenant;
    const { number, inbox } = gateway.register();
    this.#number = number;
    this.#inbox = inbox;
    this.#id = headerText(request, 'x-request-id') || `gw-${number}`;
    this.#arrivalUs = gateway.nowUs();
    this.#patience = patienceOf(request, gateway.limits.totalMs);
  }

  async run(): Promise<void> {
    if (this.#response.destroyed) {
      this.#gateway.counts.clientsLeft++;
      this.#gateway.forget(this.#number);
      return;
    }
    const onClose = (): void => this.#clientClosed();
    this.#response.on('close', onClose);
    this.#waitUntil(this.#patience.beginMs);
    try {
      if (!this.#read()) return;
      this.#arrive();
      await this.#decisions();
    } finally {
      this.#cancelTimer();
      this.#response.off('close', onClose);
      this.#end('dropped', 0); // nothing is left behind, whatever way it ended
      this.#gateway.forget(this.#number);
    }
  }

  /** Reads the facts of the body that decisions may know. @returns false where the client was told that it is wrong */
  #read(): boolean {
    const { cutter, pool, wantsKeys, counts } = this.#gateway;
    const isChecked = promptPaths.has(this.#path);
    // some calls have no body, such as one that cancels a job
    const isEmpty = this.#body.length === 0 && !isChecked;
    if (isEmpty || (!isChecked && !mustBeJson(this.#request.headers['content-type']))) return true;
    let fields: ReadPrompt['fields'];
    try {
      const template = wantsKeys ? cutter.chatTemplate : null;
      const { fields: all, ...read } = readPrompt(this.#path, this.#body.toString('utf8'), template);
      this.#prompt = read;
      fields = all;
      this.#body = withoutControl(this.#body, fields);
    } catch (error) {
      if (!(error instanceof TierKVError)) throw error;
      counts.invalid++;
      sendError(this.#response, 400, 'invalid_body', error.message);
      return false;
    }
    const { prompt, model, salt, addsSpecial, isExact, isWhole } = this.#prompt;
    if (wantsKeys) {
      const named = pool.resolve(model);
      if (cutter.chatTemplate !== null && chatPaths.has(this.#path) && !isExact) counts.chatsByText++;
      const ownSalt = cutter.salts.of(this.#tenant, salt);
      const root = cutter.root(named.model, named.adapter, ownSalt, isExact ? undefined : this.#path);
      const facts = cutter.cut(prompt, root, addsSpecial);
      this.#promptTokens = facts.promptTokens;
      this.#countsTokens = isExact && isWhole && facts.isCounted;
      this.#words = facts.words;
    } else this.#promptTokens = Math.max(1, Math.ceil(prompt.length / 4));
    const came = { path: this.#path, fields, bytes: this.#body.length, words: this.#words, isExact, salt };
    this.#diagnosis = MissDiagnosis.of(this.#gateway, this.#request, this.#tenant, came);
    this.#body = this.#diagnosis?.bodyOf(this.#body) ?? this.#body;
    return true;
  }

  #arrive(): void {
    const named = (this.#named = this.#gateway.pool.resolve(this.#prompt?.model ?? ''));
    this.#gateway.tell({
      in: 'arrive',
      request: {
        number: this.#number,
        id: this.#id,
        tenantId: this.#tenant,
        sloClass: headerText(this.#request, 'x-slo-class'),
        model: named.model,
        adapter: named.adapter,
        sessionId: this.#session,
        promptTokens: this.#promptTokens,
        deadlineUs: this.#arrivalUs + this.#patience.beginMs * 1000,
        sloTargetUs: this.#sloTargetUs,
        keys: keysText(this.#words, this.#words.length / 4),
      },
    });
  }

  /** A name of the session that says nothing of the client's own. */
  get #session(): string {
    const named = headerText(this.#request, 'x-session-id') || (this.#prompt?.user ?? '');
    return named === '' ? '' : this.#gateway.cutter.nameOf(`${this.#tenant}\n${named}`);
  }

  get #sloTargetUs(): number {
    const targetMs = Number(headerText(this.#request, 'x-slo-ttft-ms'));
    return targetMs > 0 && targetMs < 1e9 ? Math.round(targetMs * 1000) : 0;
  }

  async #decisions(): Promise<void> {
    const { counts } = this.#gateway;
    for (;;) {
      const decision = await this.#inbox.next();
      if (decision === undefined) {
        // the client left while it waited, or its time was over
        if (this.#state === 'waiting') {
          this.#state = 'ended';
          this.#gateway.tell({ in: 'leave', request: this.#number });
        }
        const left = this.#response.destroyed;
        if (left) counts.clientsLeft++;
        else {
          counts.failed++;
          sendError(this.#response, 504, 'timeout', 'The request has waited too long.');
        }
        this.#record(left ? 'clientLeft' : 'failed', 0, undefined);
        return;
      }
      switch (decision.out) {
        case 'admission':
          if (decision.verdict !== 'reject') continue;
          this.#turnedAway('rejected', `The request was turned away: ${decision.reason ?? 'by policy'}.`);
          return;
        case 'shed':
          this.#turnedAway('queue_full', 'The queue is full of more urgent requests. Come again later.');
          return;
        case 'expired':
          this.#turnedAway('queue_timeout', 'The request has waited as long as it may. Come again later.');
          return;
        case 'unroutable':
          this.#state = 'ended';
          this.#unroutable();
          return;
        case 'route':
          this.#state = 'routed';
          if (await this.#attempt(decision.target, decision.rank, await this.#prefill(decision))) return;
          continue;
        case 'fallback':
          continue;
      }
    }
  }

  #turnedAway(code: string, message: string): void {
    this.#state = 'ended';
    this.#gateway.counts.rejected++;
    this.#record('rejected', 0, undefined);
    sendError(this.#response, 429, code, message, this.#gateway.retryAfterS());
  }

  /** No backend is left: the client gets what the last one said, or why none could. */
  #unroutable(): void {
    const { counts, pool } = this.#gateway;
    counts.unroutable++;
    this.#record('unroutable', 0, undefined);
    if (this.#refused !== undefined) {
      this.#sendHead(this.#refused);
      this.#response.end(Buffer.concat(this.#refused.chunks));
      return;
    }
    if (this.#failure !== undefined) {
      const { status, code, message } = this.#failure;
      sendError(this.#response, status, code, message);
      return;
    }
    const model = this.#prompt?.model ?? '';
    const isUp = pool.backends.some((backend) => backend.isRoutable);
    if (isUp && model !== '' && !pool.resolve(model).isKnown) {
      sendError(
        this.#response,
        404,
        'model_not_found',
        `The model "${model.slice(0, 100)}" is not served here.`,
      );
    } else sendError(this.#response, 503, 'no_backend', 'No backend can take the request now.', 1);
  }

  /**
   * Has one backend compute the prompt for another.
   * @returns what the second leg needs of the first; undefined without one, and where it failed
   */
  async #prefill({ prefill, rank }: GatewayOutput & { readonly out: 'route' }): Promise<string | undefined> {
    this.#prefillBackend = '';
    if (prefill === undefined) return undefined;
    const { pool, limits, counts, cutter } = this.#gateway;
    const backend = pool.of(prefill);
    let params: string | undefined;
    if (backend !== undefined && promptPaths.has(this.#path) && this.#prompt !== undefined) {
      const attempt = this.#begin(backend);
      let isGood: boolean | undefined;
      this.#diagnosis?.sent(backend);
      try {
        const answer = await this.#send(
          backend,
          this.#ranked(prefillBody(this.#body, this.#path !== messagesPath), rank),
          limits,
        );
        pool.heard(backend, attempt);
        // it may say with 200 that it failed; an answer to a prompt alone may have no choice
        const status = trueStatus(answer, false);
        const isWhole = status === 200 && answer.rest === undefined;
        params = isWhole ? transferParamsIn(Buffer.concat(answer.chunks)) : undefined;
        if (answer.rest !== undefined) this.#upstream?.destroy();
        isGood = params !== undefined || status < 500;
        if (params === undefined) {
          backend.counts.failures++;
          backend.lastError = `its answer (${status}) to a prompt had no kv_transfer_params`;
        } else {
          this.#prefillBackend = backend.id;
          const meter = new AnswerMeter(false);
          for (const chunk of answer.chunks) meter.see(chunk);
          meter.end();
          this.#prefillCached = meter.cachedTokens;
          this.#diagnosis?.prefilled(meter.cachedTokens);
          if (meter.cachedTokens >= 0) {
            const blocks = Math.floor(meter.cachedTokens / cutter.blockTokens);
            this.#gateway.tell({ in: 'cached', request: this.#number, blocks });
          }
        }
      } catch (error) {
        if (!(error instanceof AttemptFailed)) throw error;
        this.#sawFailure(backend, error);
        isGood = this.#response.destroyed ? undefined : false;
      } finally {
        pool.end(backend, attempt, isGood);
        this.#upstream = undefined;
      }
    }
    counts[params === undefined ? 'prefillsFailed' : 'prefills']++;
    this.#gateway.tell({ in: 'prefilled', request: this.#number, ok: params !== undefined });
    return params;
  }

  /** A backend did not answer, unless it is the client that has left. */
  #sawFailure(backend: Backend, error: AttemptFailed): void {
    if (this.#response.destroyed) return;
    if (error.kind === 'connection') this.#gateway.pool.failed(backend, error.message);
    else {
      backend.counts.failures++;
      backend.lastError = error.message;
    }
  }

  /** A backend gets it, and may be told to give it up. */
  #begin(backend: Backend): HeldAttempt {
    return this.#gateway.pool.begin(backend, (why) => {
      this.#upstream?.destroy(new AttemptFailed('timeout', why));
    });
  }

  /** The body with the rank of the request, where servers are told. */
  #ranked(body: Buffer, rank: number): Buffer {
    const tells = this.#gateway.sendsPriority && this.#prompt !== undefined;
    return tells ? withField(body, 'priority', String(rank)) : body;
  }

  /** Sends a body to a backend. @throws AttemptFailed */
  async #send(backend: Backend, body: Buffer, limits: GatewayLimits): Promise<BegunAnswer> {
    const headers = this.#headers(backend, body.length);
    const open = (isFresh: boolean): http.ClientRequest => {
      const { method = 'POST', url = '/' } = this.#request;
      this.#upstream = backend.request(method, url, headers, isFresh);
      // a client that left meanwhile has no upstream to stop
      if (this.#response.destroyed) this.#upstream.destroy();
      return this.#upstream;
    };
    return beginAnswer(open, body, limits, promptPaths.has(this.#path));
  }

  /**
   * Sends it to a backend.
   * @param params of the leg that computed its prompt elsewhere
   * @returns whether it has ended; false where it is decided about again
   */
  async #attempt(instance: number, rank: number, params: string | undefined): Promise<boolean> {
    if (this.#response.destroyed) return this.#left();
    if (this.#isLate) return this.#again('timeout', 'the answer took too long');
    const { pool, limits, counts } = this.#gateway;
    const backend = pool.of(instance);
    if (backend === undefined) return this.#again('connection', 'the backend is gone');
    this.#backend = backend.id;
    const attempt = this.#begin(backend);
    let isGood: boolean | undefined;
    const sentMs = performance.now();
    try {
      const isSplit = pool.hasRoles && this.#prompt !== undefined;
      const whole = isSplit && params !== undefined ? decodeBody(this.#body, params) : this.#body;
      const body = this.#ranked(whole, rank);
      if (params === undefined) this.#diagnosis?.sent(backend);
      let answer: BegunAnswer;
      try {
        answer = await this.#send(backend, body, limits);
      } catch (error) {
        if (!(error instanceof AttemptFailed)) throw error;
        if (this.#response.destroyed) return this.#left();
        isGood = false;
        this.#sawFailure(backend, error);
        return this.#again(error.kind, error.message);
      }
      pool.heard(backend, attempt);
      if (this.#response.destroyed) return this.#left();
      const status = trueStatus(answer, promptPaths.has(this.#path));
      const isBusy = retriedStatus.has(status);
      const isHeld = answer.rest === undefined || answer.streams;
      if (isHeld && (isBusy || (status >= 500 && this.#mayBeTheServer(backend)))) {
        if (answer.rest !== undefined) this.#upstream?.destroy();
        this.#refused = answer;
        backend.lastError = `it answered ${status}`;
        if (!isBusy) {
          this.#suspect = backend;
          if (backend.standing.state === 'onTrial') isGood = false;
        }
        return this.#again('answer', backend.lastError);
      }
      // what another server can do, the one before could not
      if (status < 500 && this.#suspect !== undefined) pool.blame(this.#suspect);
      this.#waitUntil(this.#patience.wholeMs);
      const end = await this.#pass(backend, attempt, answer, sentMs);
      isGood = status >= 500 ? undefined : end;
      return true;
    } finally {
      pool.end(backend, attempt, isGood);
      this.#upstream = undefined;
      if (this.#state === 'routed') {
        // whatever threw, the decisions know that it is over
        this.#end('dropped', 0);
        counts.failed++;
      }
    }
  }

  /** Whether an error of a server is asked about at another one, once: the request may be at fault, and then both say so. */
  #mayBeTheServer(backend: Backend): boolean {
    const { pool, limits } = this.#gateway;
    const mayRetry = this.#suspect === undefined && !this.#isLate && this.#retries < limits.retries;
    return mayRetry && pool.others(backend).length > 0;
  }

  /** @returns whether the server did what was asked; undefined where the end says nothing of it */
  async #pass(
    backend: Backend,
    attempt: HeldAttempt,
    answer: BegunAnswer,
    sentMs: number,
  ): Promise<boolean | undefined> {
    const { limits, counts, cutter, pool } = this.#gateway;
    const isGood = answer.status < 400;
    const isChecked = promptPaths.has(this.#path);
    const meter = new AnswerMeter(answer.streams, this.#prompt?.choices, (isFirst) => {
      if (!isGood || !isFirst) return;
      this.#firstUs = this.#gateway.nowUs();
      backend.recentTtftMs = mixed(backend.recentTtftMs, performance.now() - sentMs);
      this.#gateway.tell({ in: 'token', request: this.#number });
    });
    const { told, rewritten } = diagnosed(answer, this.#diagnosis, this.#path, this.#response, meter);
    this.#sendHead(told);
    const heard = (): void => pool.heard(backend, attempt);
    const passed = await passOn(told, this.#response, limits, meter, heard, rewritten);
    meter.end();
    const ended = judged(passed, answer, meter, isChecked);
    const tokens = isGood ? meter.outputTokens : 0;
    if (tokens > 1 && this.#firstUs !== -1) {
      const tookMs = (this.#gateway.nowUs() - this.#firstUs) / 1000;
      backend.recentTpotMs = mixed(backend.recentTpotMs, tookMs / (tokens - 1));
    }
    const isMiscounted = meter.promptTokens >= 0 && meter.promptTokens !== this.#promptTokens;
    if (this.#countsTokens && isMiscounted) counts.promptsMiscounted++;
    if (meter.cachedTokens >= 0) {
      const blocks = Math.floor(meter.cachedTokens / cutter.blockTokens);
      this.#gateway.tell({ in: 'cached', request: this.#number, blocks });
    }
    const { outcome, how } = endOf(ended, isGood);
    this.#end(how, tokens);
    this.#record(outcome, tokens, meter);
    if (outcome === 'completed') this.#diagnosis?.answered(meter, this.#id);
    if (ended === 'saidError') {
      // the client was told by the answer itself
      counts.brokenAnswers++;
      this.#response.end();
      // what a server says of a request that is wrong does not speak against the server
      if (meter.failure !== undefined && meter.failure.status < 500) return true;
      backend.counts.failures++;
      backend.lastError = `it ended an answer with an error: ${meter.failure?.message ?? 'no answer'}`.slice(
        0,
        200,
      );
      return false;
    }
    if (ended === 'whole') {
      if (isGood) counts.completed++;
      else counts.backendErrors++;
      this.#response.end();
      return answer.status < 500;
    }
    if (outcome === 'clientLeft') counts.clientsLeft++;
    else {
      counts.brokenAnswers++;
      backend.counts.failures++;
      backend.lastError = ended === 'tooLong' ? 'an answer was too long' : 'an answer broke off';
    }
    this.#upstream?.destroy();
    // a client sees that the answer is cut: it gets no proper end
    this.#response.destroy();
    return outcome === 'clientLeft' ? undefined : false;
  }

  /** It is decided about again, if it may be. @returns whether it has ended */
  #again(kind: AttemptFailed['kind'], why: string): boolean {
    const { limits, counts } = this.#gateway;
    const status = kind === 'timeout' ? 504 : 502;
    const code = kind === 'timeout' ? 'backend_timeout' : 'backend_failed';
    this.#failure = { status, code, message: `The backend failed: ${why}.` };
    if (!this.#isLate && this.#retries++ < limits.retries) {
      counts.retries++;
      this.#state = 'waiting';
      this.#gateway.tell({ in: 'retry', request: this.#number });
      return false;
    }
    this.#end('dropped', 0);
    counts.failed++;
    this.#record('failed', 0, undefined);
    if (this.#refused !== undefined && kind === 'answer') {
      this.#sendHead(this.#refused);
      this.#response.end(Buffer.concat(this.#refused.chunks));
    } else sendError(this.#response, status, code, this.#failure.message);
    return true;
  }

  /** The client has left while the backend worked. */
  #left(): true {
    this.#gateway.counts.clientsLeft++;
    this.#end('dropped', 0);
    this.#record('clientLeft', 0, undefined);
    return true;
  }

  #clientClosed(): void {
    if (this.#response.writableFinished) return;
    this.#upstream?.destroy();
    if (this.#state === 'waiting') this.#inbox.shut();
  }

  #end(how: EndKind, outputTokens: number): void {
    if (this.#state !== 'routed') return;
    this.#state = 'ended';
    this.#gateway.tell({ in: 'end', request: this.#number, how, outputTokens });
  }

  #headers(backend: Backend, bytes: number): http.OutgoingHttpHeaders {
    const tenant = this.#gateway.tenants === undefined ? undefined : this.#tenant;
    const headers = forwardedHeaders(this.#request, backend, tenant, this.#gateway.forwardHeaders);
    headers['x-request-id'] = this.#id;
    headers['content-length'] = bytes;
    return headers;
  }

  #sendHead(answer: BegunAnswer): void {
    this.#response.setHeader('x-request-id', this.#id);
    sendHead(this.#response, answer, this.#backend);
  }

  /** @param ms from its arrival */
  #waitUntil(ms: number): void {
    this.#cancelTimer();
    const late = (): void => {
      this.#isLate = true;
      this.#upstream?.destroy(new AttemptFailed('timeout', 'the answer took too long'));
      if (this.#state === 'waiting') this.#inbox.shut();
    };
    this.#cancelTimer = runningClock.alarm(
      Math.max(0, this.#beganMs + ms - runningClock.nowMs()),
      late,
      true,
    );
  }

  #record(outcome: TraceOutcome, outputTokens: number, meter: AnswerMeter | undefined): void {
    const { beginMs } = this.#patience;
    this.#gateway.record({
      id: this.#id,
      arrivalUs: this.#arrivalUs,
      promptTokens: this.#promptTokens,
      words: this.#words,
      outputTokens,
      maxTokens: this.#prompt?.maxTokens ?? 0,
      model: this.#named.model,
      adapter: this.#named.adapter,
      tenantId: this.#tenant,
      sloClass: headerText(this.#request, 'x-slo-class'),
      sloTargetUs: this.#sloTargetUs,
      deadlineUs: beginMs < this.#gateway.limits.totalMs ? beginMs * 1000 : 0,
      sessionId: this.#session,
      streams: this.#prompt?.streams ?? false,
      outcome,
      unknownEnd: meter?.unknownEnd ?? '',
      backend: this.#backend,
      prefillBackend: this.#prefillBackend,
      ttftUs: this.#firstUs === -1 ? -1 : this.#firstUs - this.#arrivalUs,
      e2eUs: this.#gateway.nowUs() - this.#arrivalUs,
      countedPromptTokens: meter?.promptTokens ?? -1,
      cachedTokens: this.#prefillBackend === '' ? (meter?.cachedTokens ?? -1) : this.#prefillCached,
    });
  }
}
