/**
 * The answer of a backend on its way to a client. Its bytes are passed on as they are. Until the first of them goes out
 * nothing is lost: an answer that ends too early, or that cannot be one, is asked for at another backend. An answer that
 * does not stream is held until it is whole, as far as there is room, so that it can be asked for again to its end.
 *
 * Times count while this process runs: after a suspend, what has come meanwhile is taken before anything is late.
 */

import type { ClientRequest, IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { runningClock } from '../../backends/runningClock.ts';
import { AnswerMeter } from './answerMeter.ts';

export interface AnswerLimits {
  /** Longest wait for the head of an answer: queue and prompt of a busy server. */
  readonly headMs: number;
  /** Longest silence within an answer. */
  readonly idleMs: number;
  /** Longest time of a whole answer. */
  readonly totalMs: number;
  /** Bytes of an answer. */
  readonly bytes: number;
  /** Longest time in which a client takes nothing of what waits for it. */
  readonly clientMs: number;
}

/** Bytes of an answer that does not stream that are held until it is whole. */
const HELD_BYTES_MOST = 2 ** 20;

/** Why no byte of an answer can go out. */
export class AttemptFailed extends Error {
  override readonly name: string = 'AttemptFailed';
  /** `connection`: nothing is known to run there; `answer`: something answered, and it cannot be passed on. */
  readonly kind: 'connection' | 'answer' | 'timeout';

  constructor(kind: 'connection' | 'answer' | 'timeout', message: string) {
    super(message);
    this.kind = kind;
  }
}

/** An answer whose first bytes are here. */
export interface BegunAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The parts of the body that have come. */
  readonly chunks: readonly Buffer[];
  /** The rest; undefined for an answer that is whole. */
  readonly rest: AsyncIterator<Buffer> | undefined;
  readonly streams: boolean;
}

/** A connection that was kept alive, and that the backend closed as it was used again. */
class StaleConnection extends Error {}

/**
 * Sends the request and waits for the first bytes of the answer.
 * @param open begins the request, with `isFresh` on a connection of its own
 * @param checked whether an answer must be JSON or a stream of events, as those of both APIs are
 * @throws AttemptFailed
 */
export async function beginAnswer(
  open: (isFresh: boolean) => ClientRequest,
  body: Buffer,
  limits: AnswerLimits,
  checked: boolean,
): Promise<BegunAnswer> {
  let request = open(false);
  let message: IncomingMessage;
  try {
    message = await headOf(request, body, limits.headMs);
  } catch (error) {
    if (!(error instanceof StaleConnection)) throw error;
    request = open(true);
    message = await headOf(request, body, limits.headMs);
  }
  const { statusCode: status = 0, headers } = message;
  const type = String(headers['content-type'] ?? '');
  const streams = type.startsWith('text/event-stream');
  const pieces = message.iterator({ destroyOnReturn: false }) as AsyncIterator<Buffer>;
  const rest: AsyncIterator<Buffer> = {
    async next() {
      const cancel = runningClock.alarm(limits.idleMs, () => request.destroy(silent()), true);
      try {
        return await pieces.next();
      } finally {
        cancel();
      }
    },
  };
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await rest.next();
      if (done === true) break;
      chunks.push(value);
      bytes += value.length;
      if (streams || bytes > HELD_BYTES_MOST) return { status, headers, chunks, rest, streams };
    }
  } catch (error) {
    throw new AttemptFailed('answer', `the answer broke off: ${messageOf(error)}`);
  }
  if (streams) throw new AttemptFailed('answer', 'the stream ended before its first event');
  // what a server says of an error is its own matter
  if (checked && isPlain(headers) && status < 400 && !isJson(chunks)) {
    request.destroy();
    throw new AttemptFailed('answer', `the answer (${status}, ${type || 'of no type'}) must be JSON`);
  }
  return { status, headers, chunks, rest: undefined, streams };
}

/** Whether its bytes are what they say: a packed answer is passed on and not looked into. */
export function isPlain({ 'content-encoding': encoding = 'identity' }: IncomingHttpHeaders): boolean {
  return encoding === 'identity';
}

function isJson(chunks: readonly Buffer[]): boolean {
  try {
    JSON.parse(Buffer.concat(chunks).toString('utf8'));
    return true;
  } catch {
    return false;
  }
}

function silent(): AttemptFailed {
  return new AttemptFailed('timeout', 'the backend was silent for too long');
}

async function headOf(request: ClientRequest, body: Buffer, headMs: number): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    let wasSent = false;
    request.on('socket', (socket) => {
      if (socket.connecting) socket.once('connect', () => (wasSent = true));
      else wasSent = true;
    });
    // all of the head counts, so a head that comes byte by byte has a bound too
    const cancel = runningClock.alarm(headMs, () => request.destroy(silent()), true);
    request.on('close', () => {
      cancel();
      // whatever came, it was no answer
      reject(new AttemptFailed('answer', 'the connection ended before an answer'));
    });
    request.on('upgrade', (_, socket) => {
      socket.destroy();
      reject(new AttemptFailed('answer', 'the backend wants another protocol'));
    });
    request.on('error', (error) => {
      if (error instanceof AttemptFailed) reject(error);
      else if (request.reusedSocket && wasReset(error)) reject(new StaleConnection(error.message));
      else reject(new AttemptFailed(wasSent ? 'answer' : 'connection', messageOf(error)));
    });
    request.on('response', (message) => {
      cancel();
      resolve(message);
    });
    request.end(body);
  });
}

/** Whether the other side closed the connection. */
function wasReset({ code }: NodeJS.ErrnoException): boolean {
  return code === 'ECONNRESET' || code === 'EPIPE';
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Answers of a backend that another one may give better: it is full (529 in Anthropic's API), or its server is not there. */
export const retriedStatus: ReadonlySet<number> = new Set([429, 502, 503, 504, 529]);

/** How the rest of an answer ended. */
type PassedEnd = 'whole' | 'backendBroke' | 'tooLong' | 'clientLeft' | 'clientStalled';
/** `saidError`: the answer itself told the client of a failure. */
export type AnswerEnd = PassedEnd | 'saidError';

/**
 * Passes an answer on, as fast as the client takes it.
 * @param meter is shown each piece before it goes @param heard is called at each piece
 * @param rewritten gives what goes in the place of each piece, and behind the last one
 */
export async function passOn(
  { chunks, rest }: BegunAnswer,
  response: ServerResponse,
  limits: AnswerLimits,
  meter: AnswerMeter,
  heard: () => void = () => {},
  rewritten?: (chunk: Buffer | null) => Buffer,
): Promise<PassedEnd> {
  let bytes = 0;
  const pass = async (chunk: Buffer): Promise<PassedEnd | undefined> => {
    bytes += chunk.length;
    if (bytes > limits.bytes) return 'tooLong';
    if (response.destroyed) return 'clientLeft';
    meter.see(chunk);
    return write(rewritten === undefined ? chunk : rewritten(chunk));
  };
  const write = async (chunk: Buffer): Promise<PassedEnd | undefined> => {
    if (chunk.length === 0 || response.write(chunk)) return undefined;
    return drained(response, limits.clientMs);
  };
  const whole = async (): Promise<PassedEnd> =>
    (rewritten === undefined ? undefined : await write(rewritten(null))) ?? 'whole';
  for (const chunk of chunks) {
    const end = await pass(chunk);
    if (end !== undefined) return end;
  }
  if (rest === undefined) return whole();
  for (;;) {
    let next: IteratorResult<Buffer>;
    try {
      next = await rest.next();
    } catch {
      return response.destroyed ? 'clientLeft' : 'backendBroke';
    }
    if (next.done === true) return whole();
    heard();
    const end = await pass(next.value);
    if (end !== undefined) return end;
  }
}

async function drained(response: ServerResponse, clientMs: number): Promise<PassedEnd | undefined> {
  return new Promise((resolve) => {
    const end = (how: PassedEnd | undefined): void => {
      cancel();
      response.off('drain', onDrain);
      response.off('close', onClose);
      resolve(how);
    };
    const onDrain = (): void => end(undefined);
    const onClose = (): void => end('clientLeft');
    const cancel = runningClock.alarm(clientMs, () => end('clientStalled'), true);
    response.once('drain', onDrain);
    response.once('close', onClose);
  });
}

/**
 * How an answer ended by what it says: a server can fail, or leave, in the middle of one whose bytes came to a proper end.
 * @param checked whether it must be one of OpenAI's API
 */
export function judged(
  passed: PassedEnd,
  { streams, status, headers }: BegunAnswer,
  meter: AnswerMeter,
  checked: boolean,
): AnswerEnd {
  if (passed !== 'whole' || status >= 400 || !isPlain(headers)) return passed;
  if (meter.failure !== undefined) return 'saidError';
  if (!checked || meter.isWhole) return 'whole';
  return streams ? 'backendBroke' : 'saidError';
}

/**
 * The status that an answer has in truth, before a byte of it goes out: servers say errors with 200 too.
 * @param checked whether it must be one of OpenAI's API
 */
export function trueStatus(
  { status, headers, chunks, rest, streams }: BegunAnswer,
  checked: boolean,
): number {
  if (status >= 400 || !isPlain(headers)) return status;
  // a stream that failed at once says so in its first event
  if (!streams && rest !== undefined) return status;
  const meter = new AnswerMeter(streams);
  for (const chunk of chunks) meter.see(chunk);
  if (rest === undefined) meter.end();
  if (meter.failure !== undefined) return meter.failure.status;
  return !checked || streams || meter.isWhole ? status : 500;
}
