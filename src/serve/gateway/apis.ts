/**
 * The two APIs that clients speak, OpenAI's and Anthropic's, by the path of a request: whose prompt is read, whose answer must be
 * one, and in whose shape an error is told. Servers have `/v1/messages` beside OpenAI's paths.
 */

import type { IncomingMessage } from 'node:http';

const chatPath = '/v1/chat/completions';
export const completionsPath = '/v1/completions';
export const messagesPath = '/v1/messages';
/** Paths whose prompts a template renders. */
export const chatPaths: ReadonlySet<string> = new Set([chatPath, messagesPath]);

/** Paths whose bodies hold a prompt, and whose answers are JSON or events. */
export const promptPaths: ReadonlySet<string> = new Set([completionsPath, chatPath, messagesPath]);

/** Paths that count the tokens of a prompt: no server computes anything, so they are no part of the workload. */
export const countingPaths: ReadonlySet<string> = new Set([
  `${messagesPath}/count_tokens`,
  '/v1/responses/input_tokens',
]);

/** Whether a client reads errors as Anthropic's API has them: by its path, or, at a path of both, by the header that it must send. */
export function speaksMessages({ url = '/', headers }: IncomingMessage): boolean {
  const path = url.split('?', 1)[0];
  const isMessages = path === messagesPath || path.startsWith(`${messagesPath}/`);
  return isMessages || headers['anthropic-version'] !== undefined;
}

/** Types of errors of Anthropic's API, by the status that each comes with. */
const errorTypes: readonly (readonly [type: string, status: number])[] = [
  ['invalid_request_error', 400],
  ['authentication_error', 401],
  ['permission_error', 403],
  ['not_found_error', 404],
  ['request_too_large', 413],
  ['rate_limit_error', 429],
  ['api_error', 500],
  ['timeout_error', 504],
  ['overloaded_error', 529],
];

const statusByType: ReadonlyMap<string, number> = new Map(errorTypes);
const typeByStatus: ReadonlyMap<number, string> = new Map(errorTypes.map(([type, status]) => [status, type]));

/** The status of an error by its type; undefined for a type that is not known. */
export function statusOfErrorType(type: unknown): number | undefined {
  return typeof type === 'string' ? statusByType.get(type) : undefined;
}

/** The body of an error that the gateway tells. @param code of the guide */
export function errorBody(isMessages: boolean, status: number, code: string, message: string): object {
  if (!isMessages) {
    const type =
      status === 429 ? 'rate_limit_error' : status < 500 ? 'invalid_request_error' : 'server_error';
    return { error: { message, type, code, param: null } };
  }
  const general = status === 503 ? 'overloaded_error' : status < 500 ? 'invalid_request_error' : 'api_error';
  return { type: 'error', error: { type: typeByStatus.get(status) ?? general, message, code } };
}
