/**
 * Answers with `diagnostics`, for a client that asked for it in its body; no other answer is written anew. Anthropic's API has the
 * member in the message: of a stream, in `message_start`. A stream of OpenAI's API gets an event of its own before `[DONE]`, as
 * for its usage, since what was found in a cache is known only then. What the server wrote stands as it was written.
 */

import type { ServerResponse } from 'node:http';
import { memberText, withMembers, withoutMark } from '../../runtime/boundedJson.ts';
import { AnswerMeter } from './answerMeter.ts';
import { type BegunAnswer, isPlain } from './answers.ts';
import { completionsPath, messagesPath } from './apis.ts';
import { headerOf, type MissDiagnosis } from './diagnosis.ts';

/** Bytes of a line that are held until it is whole. */
const LINE_BYTES_MOST = 2 ** 18;

/** An answer as its client gets it. */
interface ToldAnswer {
  readonly told: BegunAnswer;
  /** Gives what goes to the client in the place of each piece, and behind the last one. */
  readonly rewritten?: (chunk: Buffer | null) => Buffer;
}

/** An answer with what its client asked to be told of its prompt: in a header, in its body, or nothing. @param meter of the answer */
export function diagnosed(
  answer: BegunAnswer,
  diagnosis: MissDiagnosis | undefined,
  path: string,
  response: ServerResponse,
  meter: AnswerMeter,
): ToldAnswer {
  const tells = diagnosis !== undefined && (diagnosis.tellsBody || diagnosis.tellsHeader);
  if (!tells || answer.status >= 400 || !isPlain(answer.headers)) return { told: answer };
  const isThere = answer.rest === undefined && !answer.streams;
  const early = new AnswerMeter(answer.streams);
  for (const chunk of answer.chunks) early.see(chunk);
  if (isThere) early.end();
  const miss = diagnosis.miss(early);
  if (diagnosis.tellsHeader) response.setHeader('x-tierkv-cache-miss', headerOf(miss));
  if (!diagnosis.tellsBody) return { told: answer };
  if (isThere) return { told: early.isWhole ? withDiagnostics(answer, diagnosis.answer(miss)) : answer };
  if (!answer.streams) return { told: answer };
  const object = path === completionsPath ? 'text_completion' : 'chat.completion.chunk';
  const rewritten = diagnosedStream({
    isMessages: path === messagesPath,
    diagnostics: () => diagnosis.answer(diagnosis.miss(meter)),
    event: () => ({ id: meter.id, object, created: Math.floor(Date.now() / 1000) }),
  });
  const { 'content-length': _, ...headers } = answer.headers;
  return { told: { ...answer, headers }, rewritten };
}

/** A whole answer with its diagnostics. @param answer a JSON object that has come whole */
function withDiagnostics(answer: BegunAnswer, diagnostics: object | null): BegunAnswer {
  const text = withoutMark(Buffer.concat(answer.chunks).toString('utf8'));
  const whole = Buffer.from(withMembers(text, () => false, { diagnostics: JSON.stringify(diagnostics) }));
  const headers = { ...answer.headers, 'content-length': String(whole.length) };
  return { ...answer, headers, chunks: [whole] };
}

interface StreamedDiagnostics {
  /** Whether it is a stream of Anthropic's API. */
  readonly isMessages: boolean;
  /** Is asked once, when the event before which it must be known has come. */
  readonly diagnostics: () => object | null;
  /** Members of an event of the answer: its id, and what it is. */
  readonly event: () => object;
}

/**
 * Writes the pieces of a stream anew, as they come.
 * @returns is given each piece, and null at the end; what it gives goes to the client
 */
function diagnosedStream(told: StreamedDiagnostics): (chunk: Buffer | null) => Buffer {
  let held = '';
  let isTold = false;
  const rewritten = (line: string): string => {
    if (isTold || !line.startsWith('data:')) return line;
    const data = line.slice(5).trim();
    if (told.isMessages) {
      if (!/^\{\s*"type"\s*:\s*"message_start"|"message_start"/.test(data.slice(0, LINE_BYTES_MOST)))
        return line;
      const message = memberText(data, 'message');
      if (message === undefined || !message.startsWith('{')) return line;
      isTold = true;
      const diagnostics = letters(JSON.stringify(told.diagnostics()));
      const more = withMembers(message, () => false, { diagnostics });
      const end = line.slice(line.trimEnd().length);
      return `data: ${withMembers(data, () => false, { message: more })}${end}`;
    }
    if (data !== '[DONE]') return line;
    return event() + line;
  };
  const event = (): string => {
    isTold = true;
    const more = { ...told.event(), choices: [], diagnostics: told.diagnostics() };
    return `data: ${letters(JSON.stringify(more))}\n\n`;
  };
  return (chunk) => {
    // a byte is a letter here, so that what is split between two pieces stays whole
    if (chunk === null) {
      const rest = held === '' ? '' : rewritten(held);
      held = '';
      // a stream may end by its reasons alone
      const end = isTold || told.isMessages ? '' : `${rest === '' ? '' : '\n\n'}${event()}`;
      return Buffer.from(rest + end, 'latin1');
    }
    if (isTold && held === '') return chunk;
    const text = held + chunk.toString('latin1');
    const lines = text.split(/(?<=\n)/);
    held = lines.at(-1)?.endsWith('\n') === true ? '' : (lines.pop() ?? '');
    if (isTold || held.length > LINE_BYTES_MOST) {
      lines.push(held);
      held = '';
    }
    return Buffer.from(lines.map(rewritten).join(''), 'latin1');
  };
}

/** UTF-8 of a text, a letter for each byte. */
function letters(text: string): string {
  return Buffer.from(text, 'utf8').toString('latin1');
}
