/** Anthropic's Messages as a server speaks them, for a test's backend: whole, in events, and counted. */

import type { Handler } from './backends.ts';

/** Tokens of a prompt as the server counts them. */
export interface MessageCounts {
  readonly input: number;
  readonly read: number;
  readonly written: number;
}

export interface SaidMessage {
  readonly id?: string;
  readonly text?: string;
  readonly counts?: MessageCounts;
}

const usageOf = ({ input, read, written }: MessageCounts): object => ({
  input_tokens: input,
  cache_creation_input_tokens: written,
  cache_read_input_tokens: read,
});

export const wholeMessage = (said: SaidMessage = {}): string => {
  const { id = 'msg_1', text = 'hello', counts = { input: 4, read: 16, written: 0 } } = said;
  const content = [{ type: 'text', text, citations: null }];
  const usage = { ...usageOf(counts), output_tokens: 3 };
  const end = { stop_reason: 'end_turn', stop_sequence: null };
  return JSON.stringify({ id, type: 'message', role: 'assistant', model: 'm', content, ...end, usage });
};

export const eventText = (type: string, more: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...more })}\n\n`;

/** Events of a message, in their order. */
export function messageEvents(said: SaidMessage = {}): string[] {
  const { id = 'msg_1', text = 'hello', counts = { input: 4, read: 16, written: 0 } } = said;
  const message = { id, type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null };
  const usage = { ...usageOf(counts), output_tokens: 1 };
  return [
    eventText('message_start', { message: { ...message, stop_sequence: null, usage } }),
    eventText('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    eventText('ping'),
    ...text
      .split(/(?<= )/)
      .map((word) =>
        eventText('content_block_delta', { index: 0, delta: { type: 'text_delta', text: word } }),
      ),
    eventText('content_block_stop', { index: 0 }),
    eventText('message_delta', {
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { output_tokens: 3 },
    }),
    eventText('message_stop'),
  ];
}

/** Answers messages, as events where they are asked for, and counts tokens. */
export const messagesServer =
  (said: () => SaidMessage = () => ({})): Handler =>
  (request, response, body) => {
    if (request.url === '/v1/messages/count_tokens') {
      response.setHeader('content-type', 'application/json');
      response.end('{"input_tokens":20}');
      return;
    }
    if ((JSON.parse(body) as { stream?: boolean }).stream === true) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const event of messageEvents(said())) response.write(event);
      response.end();
      return;
    }
    response.setHeader('content-type', 'application/json');
    response.end(wholeMessage(said()));
  };
