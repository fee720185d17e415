/**
 * What goes back from Anthropic's `/v1/messages`: a whole message, or its events. Each event has the name of its type, since
 * the official client looks at no other. The first one waits for the first token, so that what was found in the cache is known
 * in `message_start`, as clients read it.
 */

import type { Answer } from '../engine/index.ts';
import type { ApiError } from './apiError.ts';
import type { EventStream } from './eventStream.ts';
import type { WantedMessage } from './messageRequest.ts';
import { type Saying, type ToolCall, ToolCalls } from './toolCalls.ts';

export interface MessageName {
  readonly id: string;
  readonly model: string;
}

type Block =
  | { readonly type: 'text'; readonly text: string; readonly citations: null }
  | { readonly type: 'tool_use'; readonly id: string; readonly name: string; readonly input: object };

/** The prompt is the sum of the three counts of input: read from the cache, written to it, and neither. */
function usageOf({ promptTokens, cachedTokens, storedTokens, tokens }: Answer, isStart = false): object {
  return {
    input_tokens: promptTokens - cachedTokens - storedTokens,
    cache_creation_input_tokens: storedTokens,
    cache_read_input_tokens: cachedTokens,
    output_tokens: isStart ? 0 : tokens.length,
  };
}

/** Fields of a whole message that these answers have not. */
const absent = { container: null, stop_details: null } as const;

function stopOf(answer: Answer, wanted: WantedMessage, hasCalls: boolean): object {
  const { finish, stoppedAt } = answer;
  const stop_sequence = stoppedAt ?? null;
  if (stoppedAt !== undefined) return { stop_reason: 'stop_sequence', stop_sequence };
  if (finish === 'length') {
    const stop_reason = wanted.isCutByContext ? 'model_context_window_exceeded' : 'max_tokens';
    return { stop_reason, stop_sequence };
  }
  return { stop_reason: hasCalls ? 'tool_use' : 'end_turn', stop_sequence };
}

/** This server keeps no earlier requests to compare with; `tierkv doctor` reads them from an access log. */
function diagnosticsOf({ asksForMiss }: WantedMessage): object {
  return asksForMiss ? { diagnostics: { cache_miss_reason: { type: 'unavailable' } } } : {};
}

export function wholeMessage(name: MessageName, answer: Answer, text: string, wanted: WantedMessage): object {
  const calls = new ToolCalls(wanted.toolNames);
  const content: Block[] = [];
  for (const said of [...calls.push(text), ...calls.end()]) {
    const last = content.at(-1);
    if ('call' in said) content.push({ type: 'tool_use', ...said.call });
    else if (last?.type === 'text') content[content.length - 1] = { ...last, text: last.text + said.text };
    else content.push({ type: 'text', text: said.text, citations: null });
  }
  return {
    ...name,
    type: 'message',
    role: 'assistant',
    content,
    ...absent,
    ...stopOf(
      answer,
      wanted,
      content.some(({ type }) => type === 'tool_use'),
    ),
    usage: usageOf(answer),
    ...diagnosticsOf(wanted),
  };
}

/** @param cutOf the error in place of an answer that was cut */
export async function streamMessage(
  events: EventStream,
  name: MessageName,
  answer: Answer,
  wanted: WantedMessage,
  cutOf: (answer: Answer) => ApiError | undefined,
): Promise<void> {
  const send = (type: string, more: object): Promise<void> => events.send({ type, ...more }, type);
  const fails = async (error: ApiError): Promise<void> => {
    await events.send(error.messageBody, 'error');
    events.end();
  };
  await answer.began;
  const early = answer.tokens.length === 0 && answer.finish !== undefined ? cutOf(answer) : undefined;
  if (early !== undefined) return fails(early);
  await send('message_start', {
    message: {
      ...name,
      type: 'message',
      role: 'assistant',
      content: [],
      ...absent,
      stop_reason: null,
      stop_sequence: null,
      usage: usageOf(answer, true),
      ...diagnosticsOf(wanted),
    },
  });
  const blocks = new BlockEvents(send);
  const calls = new ToolCalls(wanted.toolNames);
  for await (const piece of answer) await blocks.say(calls.push(piece));
  const cut = cutOf(answer);
  if (cut !== undefined) return fails(cut);
  await blocks.say(calls.end());
  await blocks.close();
  await send('message_delta', {
    delta: { ...absent, ...stopOf(answer, wanted, blocks.hasCalls) },
    usage: usageOf(answer),
  });
  await send('message_stop', {});
  events.end();
  return undefined;
}

/** Blocks one behind the other: texts grow in one, and each call has its own. */
class BlockEvents {
  readonly #send: (type: string, more: object) => Promise<void>;
  #index = 0;
  #isOpen = false;
  hasCalls = false;

  constructor(send: (type: string, more: object) => Promise<void>) {
    this.#send = send;
  }

  async say(said: readonly Saying[]): Promise<void> {
    for (const each of said) {
      if ('call' in each) await this.#call(each.call);
      else await this.#text(each.text);
    }
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#send('content_block_stop', { index: this.#index++ });
  }

  async #open(block: Block): Promise<void> {
    this.#isOpen = true;
    await this.#send('content_block_start', { index: this.#index, content_block: block });
  }

  async #text(text: string): Promise<void> {
    if (!this.#isOpen) await this.#open({ type: 'text', text: '', citations: null });
    await this.#send('content_block_delta', { index: this.#index, delta: { type: 'text_delta', text } });
  }

  async #call({ id, name, input }: ToolCall): Promise<void> {
    await this.close();
    this.hasCalls = true;
    await this.#open({ type: 'tool_use', id, name, input: {} });
    const delta = { type: 'input_json_delta', partial_json: JSON.stringify(input) };
    await this.#send('content_block_delta', { index: this.#index, delta });
    await this.close();
  }
}
