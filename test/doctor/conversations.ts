/**
 * Conversations as clients record them, made by a script: one for each cause by which a prefix cache breaks, two without a
 * cause, one that the server dropped and one that went to another server. Turns of all conversations are mixed, as a server sees them.
 */

export interface Recorded {
  readonly body: object;
  readonly response?: object;
  readonly backend?: string;
}

export interface Conversation {
  readonly name: string;
  /** Cause that is to be found; undefined for none. */
  readonly cause: string | undefined;
  /** Beginning of the path at which it is to be found. */
  readonly path?: string;
  readonly turns: readonly Recorded[];
}

/** Text of a conversation's own, so that no two are alike. */
function prose(seed: string, lines: number): string {
  return Array.from(
    { length: lines },
    (_, i) => `${seed} line ${i}: the ${seed}${i * 7} of part ${i * 13} is kept with its ${seed}${i * 31}.`,
  ).join('\n');
}

const system = (seed: string): string => `You are an agent for ${seed}.\n${prose(`${seed}-rules`, 12)}`;
const tool = (name: string) => ({
  type: 'function',
  function: {
    name,
    description: `Runs ${name} in the workspace and gives its output.`,
    parameters: { type: 'object', properties: { path: { type: 'string' }, limit: { type: 'number' } } },
  },
});

interface Message {
  readonly role: string;
  readonly content: unknown;
  readonly [more: string]: unknown;
}

/** Bodies of the turns of a chat, each with all messages before it. @param change makes a turn's body of the plain one */
function chat(
  seed: string,
  change: (body: { messages: Message[]; tools: object[]; model: string }, turn: number) => object = (body) =>
    body,
  turns = 4,
): Recorded[] {
  const said: Message[] = [{ role: 'system', content: system(seed) }];
  return Array.from({ length: turns }, (_, turn) => {
    said.push({ role: 'user', content: `${seed} question ${turn}: ${prose(`${seed}-q${turn}`, 3)}` });
    const body = change({ model: 'm', messages: [...said], tools: ['read', 'write', 'run'].map(tool) }, turn);
    said.push({ role: 'assistant', content: prose(`${seed}-a${turn}`, 4) });
    return { body };
  });
}

const firstLineOfSystem =
  (line: (turn: number) => string) =>
  (body: { messages: Message[] }, turn: number): object => ({
    ...body,
    messages: body.messages.map((message) =>
      message.role === 'system' ? { ...message, content: `${line(turn)}\n${message.content}` } : message,
    ),
  });

/** A chat whose first answer called a tool, with its arguments and thinking as a turn writes them. */
function withCall(
  seed: string,
  write: (turn: number) => string,
  think: (turn: number) => object[],
): Recorded[] {
  return chat(seed, (body, turn) => ({
    ...body,
    messages: body.messages.map((message, i) =>
      i === 2
        ? {
            ...message,
            content: [...think(turn), { type: 'text', text: message.content }],
            tool_calls: [{ id: 'c', type: 'function', function: { name: 'read', arguments: write(turn) } }],
          }
        : message,
    ),
  }));
}

const marks = { cache_control: { type: 'ephemeral' } };

/** @param bytes of the prompt that a token has */
function usage(body: object, found: number): object {
  const tokens = Math.round(JSON.stringify(body).length / 4);
  return {
    choices: [{ message: { role: 'assistant', content: 'yes' }, finish_reason: 'stop' }],
    usage: {
      prompt_tokens: tokens,
      completion_tokens: 1,
      prompt_tokens_details: { cached_tokens: Math.round(tokens * found) },
    },
  };
}

export const conversations: readonly Conversation[] = [
  {
    name: 'a billing header that changes',
    cause: 'header',
    path: 'messages[0]',
    turns: chat(
      'billing',
      firstLineOfSystem((turn) => `x-billing-header: version=2.1; cch=${(turn * 7919 + 4096).toString(16)};`),
    ),
  },
  {
    name: 'the time in the system text',
    cause: 'date',
    path: 'messages[0]',
    turns: chat(
      'clock',
      firstLineOfSystem((turn) => `Today is 2026-11-2${turn + 1}, 10:0${turn}.`),
    ),
  },
  {
    name: 'a marker of total tokens',
    cause: 'tokenMarker',
    path: 'messages[0]',
    turns: chat(
      'marker',
      firstLineOfSystem((turn) => `Tokens used so far: ${1000 + turn * 731} of 200000`),
    ),
  },
  {
    name: 'an identifier of the request',
    cause: 'identifier',
    path: 'messages[0]',
    turns: chat(
      'ident',
      firstLineOfSystem((turn) => `Workspace copy w${turn}f8a3c91d2 is mounted.`),
    ),
  },
  {
    name: 'tools in another order',
    cause: 'toolOrder',
    path: 'tools[',
    turns: chat('order', (body, turn) => ({
      ...body,
      tools: turn % 2 === 0 ? body.tools : [...body.tools].reverse(),
    })),
  },
  {
    name: 'thinking that is left out later',
    cause: 'thinking',
    path: 'messages[2]',
    turns: withCall(
      'thought',
      () => '{"path": "a"}',
      (turn) => (turn < 2 ? [{ type: 'thinking', thinking: prose('thought-inner', 6), signature: 's' }] : []),
    ),
  },
  {
    name: 'arguments of a call written by another JSON library',
    cause: 'whitespace',
    path: 'messages[2]',
    turns: withCall(
      'json',
      (turn) => (turn < 2 ? '{"path": "a", "limit": 3}' : '{"path":"a","limit":3}'),
      () => [],
    ),
  },
  {
    name: 'an image encoded again',
    cause: 'image',
    path: 'messages[1]',
    turns: chat('picture', (body, turn) => ({
      ...body,
      messages: body.messages.map((message, i) =>
        i === 1
          ? {
              ...message,
              content: [
                { type: 'image_url', image_url: { url: `data:image/jpeg;base64,${'AB'.repeat(60 + turn)}` } },
                { type: 'text', text: message.content },
              ],
            }
          : message,
      ),
    })),
  },
  {
    name: 'cache_control taken off the system text',
    cause: 'cacheControl',
    path: 'system[0]',
    turns: chat('mark', ({ messages, ...body }, turn) => ({
      ...body,
      system: [{ type: 'text', text: messages[0].content, ...(turn < 2 ? marks : {}) }],
      messages: messages.slice(1),
    })),
  },
  {
    name: 'another model',
    cause: 'model',
    path: 'model',
    turns: chat('swap', (body, turn) => ({ ...body, model: turn < 2 ? 'm' : 'm-large' })),
  },
  {
    name: 'settings of the template',
    cause: 'template',
    path: 'chat_template_kwargs',
    turns: chat('template', (body, turn) => ({
      ...body,
      chat_template_kwargs: { enable_thinking: turn < 2 },
    })),
  },
  {
    name: 'the server dropped it',
    cause: 'evicted',
    turns: chat('dropped').map(({ body }, turn) => ({
      body,
      response: usage(body, turn === 2 ? 0 : 0.9),
      backend: 'a',
    })),
  },
  {
    name: 'the turn went elsewhere',
    cause: 'elsewhere',
    turns: chat('routed').map(({ body }, turn) => ({
      body,
      response: usage(body, turn === 2 ? 0 : 0.9),
      backend: turn < 2 ? 'a' : 'b',
    })),
  },
  { name: 'a chat without a fault', cause: undefined, turns: chat('plain', undefined, 8) },
  {
    name: 'a chat whose mark moves with its newest message, and whose question is asked again in other words',
    cause: undefined,
    turns: [
      ...chat('rolling', (body) => ({
        ...body,
        messages: body.messages.map((message, i) =>
          i === body.messages.length - 1
            ? { ...message, content: [{ type: 'text', text: message.content, ...marks }] }
            : message,
        ),
      })),
      ...chat('rolling').map(({ body }, turn) => {
        const { messages } = body as { messages: Message[] };
        if (turn < 3) return { body };
        return {
          body: {
            ...body,
            messages: [...messages.slice(0, -1), { role: 'user', content: 'In other words, please?' }],
          },
        };
      }),
    ],
  },
];

/** All turns, one of each conversation after the other. */
export function mixed(some: readonly Conversation[]): Recorded[] {
  const most = Math.max(...some.map(({ turns }) => turns.length));
  return Array.from({ length: most }, (_, turn) =>
    some.flatMap(({ turns }) => turns.slice(turn, turn + 1)),
  ).flat();
}
