/**
 * Recorded requests from files: JSON lines of bodies or of records that hold one (`body`, `request`), with the answer beside
 * it where it was kept (`response`, `answer`); one JSON file with a list of these; and HAR archives of browsers and proxies.
 * Entries that hold no prompt are counted, and no line is left out in silence.
 */

import { fileLines, readText } from '../../io/files/inputs.ts';
import { formatCounted } from '../../io/printing/text.ts';
import { maxLineValues, parseJson } from '../../runtime/boundedJson.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { AnswerMeter } from '../gateway/answerMeter.ts';
import type { BodyFields } from '../gateway/chatPrompts.ts';
import { type PromptInParts, promptOf } from './promptParts.ts';

export interface SentRequest {
  /** Where it was read, such as `a.jsonl:3`. */
  readonly at: string;
  readonly prompt: PromptInParts;
  readonly model: string;
  /** Id of a session that the client said; empty for none. */
  readonly session: string;
  /** Name of the server that answered; empty where the record does not say. */
  readonly backend: string;
  /** Tokens of the prompt by the server's count, and how many of them it found cached; -1 where it did not say. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

interface TimedRequest extends SentRequest {
  readonly time: number | undefined;
}

export interface Recording {
  readonly requests: readonly SentRequest[];
  /** Entries that hold no prompt, such as other requests of an archive. */
  readonly others: number;
}

/** Values of a JSON file that holds all requests. */
const FILE_VALUES_MOST = 2 ** 23;

const isObject = (value: unknown): value is BodyFields =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const asText = (value: unknown): string => (typeof value === 'string' ? value : '');

/**
 * Reads the requests of a file, in the order of their times where all have one, else as they stand in the file.
 * @throws TKV_INPUT with file and line for what is not JSON, and for a file without a prompt; TKV_IO for a file that cannot be read
 */
export function readRecording(file: string): Recording {
  const requests: TimedRequest[] = [];
  let others = 0;
  const take = (record: unknown, at: string): void => {
    const request = isObject(record) ? requestOf(record, at) : undefined;
    if (request === undefined) others++;
    else requests.push(request);
  };
  const whole = wholeFile(file);
  if (whole !== undefined) {
    for (const [i, record] of whole.entries()) take(record, `${file}: entry ${i + 1}`);
  } else {
    let line = 0;
    for (const text of fileLines(file)) {
      line++;
      if (text.trim() !== '') take(parsed(text, `${file}:${line}`, maxLineValues), `${file}:${line}`);
    }
  }
  if (requests.length === 0) {
    const problem =
      others === 0 ? 'is empty' : `has ${formatCounted(others, 'entries')}, and no prompt in any`;
    const remedy = 'Give JSON lines of request bodies with messages, input or prompt, or a HAR file.';
    throw new TierKVError('TKV_INPUT', `${file} ${problem}. ${remedy}`, { field: file });
  }
  // lines of a proxy stand in the order in which answers ended
  if (requests.every(({ time }) => time !== undefined))
    requests.sort((a, b) => (a.time ?? 0) - (b.time ?? 0));
  return { requests, others };
}

/** Time of a record by the names that proxies use; only the order of times counts. */
function timeOf({
  timestamp,
  time,
  arrival_us: arrivalUs,
  created_at: created,
}: BodyFields): number | undefined {
  const said = arrivalUs ?? timestamp ?? time ?? created;
  const value =
    typeof said === 'string' && Number.isNaN(Number(said)) ? Date.parse(said) : Number(said ?? Number.NaN);
  return Number.isNaN(value) ? undefined : value;
}

function parsed(text: string, at: string, mostValues: number): unknown {
  return parseJson(
    text,
    (problem, cause) =>
      new TierKVError('TKV_INPUT', `${at}: ${problem}. Give JSON lines of request bodies, or a HAR file.`, {
        field: at,
        cause,
      }),
    mostValues,
  );
}

/** Entries of a file that is one JSON value; undefined for JSON lines. */
function wholeFile(file: string): readonly unknown[] | undefined {
  for (const line of fileLines(file)) {
    if (line.trim() === '') continue;
    // a value that ends with its line is a line; a list of all requests, and an archive, are not
    const first = line.trim();
    try {
      const value: unknown = JSON.parse(first);
      if (isObject(value) && !isArchive(value)) return undefined;
    } catch {
      if (!/^[[{]\s*("\w*"\s*:\s*([[{]\s*)?)?$/.test(first) && !first.startsWith('[')) return undefined;
    }
    break;
  }
  const value = parsed(readText(file), file, FILE_VALUES_MOST);
  if (Array.isArray(value)) return value as unknown[];
  if (isObject(value) && isArchive(value))
    return ((value.log as BodyFields).entries as unknown[]).map(ofArchive);
  return [value];
}

const isArchive = (value: BodyFields): boolean =>
  isObject(value.log) && Array.isArray((value.log as BodyFields).entries);

/** An entry of an archive as a record. */
function ofArchive(entry: unknown): unknown {
  if (!isObject(entry) || !isObject(entry.request)) return undefined;
  const { request, response } = entry;
  const posted = isObject(request.postData) ? request.postData.text : undefined;
  const content = isObject(response) && isObject(response.content) ? response.content : {};
  const text = asText(content.text);
  return {
    body: posted,
    response: content.encoding === 'base64' ? Buffer.from(text, 'base64').toString('utf8') : text,
    backend: hostOf(asText(request.url)),
    time: entry.startedDateTime,
  };
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : '';
}

/** The first of these members that is an object, or the JSON text of one. */
function objectIn(record: BodyFields, names: readonly string[]): BodyFields | undefined {
  for (const name of names) {
    const value = record[name];
    if (isObject(value)) return value;
    if (typeof value !== 'string' || !value.trimStart().startsWith('{')) continue;
    try {
      const inner: unknown = JSON.parse(value);
      if (isObject(inner)) return inner;
    } catch {
      // only JSON holds a prompt
    }
  }
  return undefined;
}

function requestOf(record: BodyFields, at: string): TimedRequest | undefined {
  const body = objectIn(record, ['body', 'request_body', 'request']) ?? record;
  // a record of a proxy may hold the request as its method, path and body
  const inner = promptOf(body) === undefined ? (objectIn(body, ['body']) ?? body) : body;
  const prompt = promptOf(inner);
  if (prompt === undefined) return undefined;
  const metadata = isObject(inner.metadata) ? inner.metadata : {};
  const sessions = [record.session_id, inner.session_id, inner.prompt_cache_key, metadata.session_id];
  return {
    at,
    time: timeOf(record),
    prompt,
    model: asText(inner.model),
    session: sessions.map(asText).find((session) => session !== '') ?? '',
    backend: asText(record.backend),
    ...usageOf(record.response ?? record.answer ?? record.response_body),
  };
}

function usageOf(answer: unknown): Pick<SentRequest, 'promptTokens' | 'cachedTokens'> {
  const said = isObject(answer) && typeof answer.body === 'string' ? answer.body : answer;
  const inner = isObject(said) && isObject(said.body) ? said.body : said;
  const text = typeof inner === 'string' ? inner : isObject(inner) ? JSON.stringify(inner) : '';
  const meter = new AnswerMeter(/^\s*(data|event):/.test(text));
  meter.see(Buffer.from(text));
  meter.end();
  return { promptTokens: meter.promptTokens, cachedTokens: meter.cachedTokens };
}
