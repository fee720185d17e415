/** Errors in the API's own shape, `{ error: { message, type, param, code } }`, whatever went wrong. */

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
}

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 404) return 'not_found_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

/** What a client may be told of an error. Errors that nobody expected keep their message to the log. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof TierKVError) return ofTierKV(error);
  const { statusCode, message } = (error ?? {}) as { statusCode?: unknown; message?: unknown };
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) {
    return new ApiError(statusCode, String(message));
  }
  return new ApiError(500, 'The server failed to answer this request. Its log says why.', null, 'internal');
}

function ofTierKV({ code, message, field }: TierKVError): ApiError {
  const param = field ?? null;
  if (code === 'TKV_CAPACITY') return new ApiError(400, message, param, 'context_length_exceeded');
  if (code === 'TKV_INPUT' || code === 'TKV_CONFIG') return new ApiError(400, message, param);
  return new ApiError(503, message, param, code);
}
