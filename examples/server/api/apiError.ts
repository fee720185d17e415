/**
 * Errors in the shape of the API that was called, whatever went wrong: OpenAI's `{ error: { message, type, param, code } }`, or
 * Anthropic's `{ type: 'error', error: { type, message } }`.
 */

import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { TierKVError } from '../../../src/index.ts';

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
}

export class ApiError extends Error {
  readonly status: number;
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;

  constructor(status: number, message: string, param: string | null = null, code: string | null = null) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
    this.type = typeOf(status);
  }

  get body(): ErrorBody {
    const { message, type, param, code } = this;
    return { error: { message, type, param, code } };
  }

  /** The same for Anthropic's API, whose messages name the field by themselves. */
  get messageBody(): {
    readonly type: 'error';
    readonly error: { readonly type: string; readonly message: string };
  } {
    const type = messageTypes[this.status] ?? (this.status >= 500 ? 'api_error' : 'invalid_request_error');
    return { type: 'error', error: { type, message: this.message } };
  }
}

/** Where Anthropic's name of an error is another one. */
const messageTypes: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
};

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 404) return 'not_found_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

/** What a client may be told of an error. The message of an unexpected error goes to the log only. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof TierKVError) return ofTierKV(error);
  const { statusCode, message } = (error ?? {}) as { statusCode?: unknown; message?: unknown };
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) {
    return new ApiError(statusCode, remedies[statusCode] ?? String(message));
  }
  return new ApiError(500, 'The server failed to answer this request. Its log says why.', null, 'internal');
}

function ofTierKV({ code, message, field }: TierKVError): ApiError {
  const param = field ?? null;
  if (code === 'TKV_CAPACITY') return new ApiError(400, message, param, 'context_length_exceeded');
  if (code === 'TKV_INPUT' || code === 'TKV_CONFIG') return new ApiError(400, message, param);
  return new ApiError(503, message, param, code);
}

const remedies: Readonly<Record<number, string>> = {
  408: 'The request did not come to its end. Send it whole.',
  413: 'The body is larger than this server takes. Send a shorter prompt.',
  415: 'The body is not said to be JSON. Send content-type: application/json.',
  431: 'The path and headers are too long. Send what is asked in the body.',
};

const brokenStatus: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};

/** The answer to bytes that cannot be read as an HTTP request, or not yet. */
export function answerBroken({ code = '' }: NodeJS.ErrnoException, socket: Socket): void {
  if (code !== 'ECONNRESET' && socket.writable) {
    const status = brokenStatus[code] ?? 400;
    const message = remedies[status] ?? 'These bytes are not an HTTP request. Send one of HTTP/1.1.';
    const body = JSON.stringify(new ApiError(status, message).body);
    socket.write(
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: application/json; charset=utf-8\r\n` +
        `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
    );
  }
  socket.destroySoon();
}
