import { describe, expect, it } from 'vitest';
import type { KVEvent } from '../../../src/serve/gateway/events/wire.ts';
import {
  answer,
  ask,
  echo,
  gatewayOf,
  type Handler,
  rawServer,
  streamedEcho,
  TestBackend,
  textOf,
  until,
  wellMetrics,
} from './backends.ts';

/** Asks often enough that round robin comes to every backend. */
async function allAnswered(gateway: Awaited<ReturnType<typeof gatewayOf>>, count = 8): Promise<void> {
  const answers = await Promise.all(Array.from({ length: count }, (_, i) => ask(gateway, `p${i}`)));
  for (const [i, response] of answers.entries()) {
    expect(response.status).toBe(200);
    expect(await textOf(response)).toBe(`echo p${i}`);
  }
}

describe('a request is asked for at another backend', () => {
  const bad: readonly (readonly [string, Handler])[] = [
    ['closes before it answers', (request) => request.socket.destroy()],
    [
      'closes after the head of a whole answer',
      (request, response) => {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1000 });
        response.write('{"choices":', () => setImmediate(() => request.socket.destroy()));
      },
    ],
    [
      'ends a stream before its first event',
      (_, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end();
      },
    ],
    ['answers what is not JSON', (_, response) => void response.end('<html>hello</html>')],
    ['answers nothing at all', (_, response) => void response.end()],
    [
      'is full',
      (_, response) => {
        response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '7' });
        response.end('{"error":{"message":"full"}}');
      },
    ],
    [
      'has a server before it that has lost it',
      (_, response) => {
        response.writeHead(502);
        response.end('{}');
      },
    ],
  ];
  it.each(bad)('when one %s', async (_what, handler) => {
    await using worse = await TestBackend.open(handler);
    await using well = await TestBackend.open(echo);
    await using gateway = await gatewayOf([worse, well]);
    await allAnswered(gateway);
    expect(worse.seen.length).toBeGreaterThan(0);
    expect(gateway.counts).toMatchObject({ completed: 8, failed: 0 });
    expect(gateway.counts.retries).toBe(worse.seen.length);
  });

  it('when one answers bytes that are no HTTP', async () => {
    await using garbage = await rawServer((socket, head) => {
      const json = 'HTTP/1.1 200 OK\r\ncontent-length: ';
      if (head.startsWith('GET /metrics')) socket.end(`${json}${wellMetrics.length}\r\n\r\n${wellMetrics}`);
      else if (head.startsWith('GET'))
        socket.end(`${json}19\r\n\r\n{"data":[{"id":"m"}]}`.replace('19', '21'));
      else socket.end('\u0000\u0001garbage without end\r\n\r\n');
    });
    const address = garbage.address();
    const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
    await using well = await TestBackend.open(echo);
    await using gateway = await gatewayOf([{ url }, well]);
    expect(gateway.pool.backends[0].isUp).toBe(true);
    await allAnswered(gateway);
    expect(gateway.counts.retries).toBeGreaterThan(0);
  });

  it('when one is killed and comes back', async () => {
    await using well = await TestBackend.open(echo);
    const killed = await TestBackend.open(echo);
    const { port } = killed;
    await using gateway = await gatewayOf([killed, well]);
    await allAnswered(gateway);
    await killed.kill();
    await allAnswered(gateway);
    await until(() => !gateway.pool.backends[0].isUp, 'the killed backend is seen to be down');
    await using again = await TestBackend.open(echo, port);
    await until(() => gateway.pool.backends[0].isUp, 'the backend is seen to be up again');
    await allAnswered(gateway);
    expect(again.seen.length).toBeGreaterThan(0);
    expect(gateway.counts.failed).toBe(0);
  });
});

describe('the client is told', () => {
  it('by the last backend that is full, with its Retry-After', async () => {
    const full: Handler = (_, response) => {
      response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '7' });
      response.end('{"error":{"message":"full"}}');
    };
    await using a = await TestBackend.open(full);
    await using b = await TestBackend.open(full);
    await using gateway = await gatewayOf([a, b]);
    const response = await ask(gateway, 'p');
    expect(response.status).toBe(429);
    expect(response.headers.get('retry-after')).toBe('7');
    expect(await response.json()).toEqual({ error: { message: 'full' } });
    expect([a.seen.length, b.seen.length]).toEqual([1, 1]);
  });

  it('502 with the reason where every backend breaks', async () => {
    await using a = await TestBackend.open((request) => request.socket.destroy());
    await using gateway = await gatewayOf([a]);
    const response = await ask(gateway, 'p');
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({ error: { code: 'backend_failed' } });
  });

  it('503 where no backend is there, and the gateway starts without one', async () => {
    const gone = await TestBackend.open(echo);
    await gone.kill();
    await using gateway = await gatewayOf([{ url: 'http://127.0.0.1:9' }]);
    const response = await ask(gateway, 'p');
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).not.toBe(null);
    expect((await fetch(`${gateway.url}/health`)).status).toBe(503);
  });

  it('404 for a model that no backend has', async () => {
    await using a = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a]);
    const response = await ask(gateway, 'p', { model: 'other' });
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({ error: { code: 'model_not_found' } });
  });

  it('what a backend says of a bad request, as it says it', async () => {
    await using a = await TestBackend.open((_, response) => {
      response.writeHead(400, { 'content-type': 'application/json', 'x-own': 'kept' });
      response.end('{"error":{"message":"max_tokens is -1"}}');
    });
    await using gateway = await gatewayOf([a]);
    const response = await ask(gateway, 'p', { max_tokens: -1 });
    expect(response.status).toBe(400);
    expect(response.headers.get('x-own')).toBe('kept');
    expect(await response.text()).toBe('{"error":{"message":"max_tokens is -1"}}');
  });
});

describe('streams', () => {
  const event = (text: string): string => `data: {"choices":[{"text":"${text}"}]}\n\n`;

  it('a stream that breaks after its first event ends as broken, never as whole', async () => {
    await using a = await TestBackend.open((request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(event('one'), () => setTimeout(() => request.socket.destroy(), 20));
    });
    await using b = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a, b]);
    const response = await ask(gateway, 'p', { stream: true });
    await expect(response.text()).rejects.toThrow();
    await until(() => gateway.counts.brokenAnswers === 1, 'the answer counts as broken');
    expect(gateway.counts.retries).toBe(0);
    expect(b.seen.length).toBe(0);
  });

  it('a stream without end is cut at the limit of bytes', async () => {
    await using a = await TestBackend.open((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const more = (): void => {
        while (!response.destroyed && response.write(event('x'.repeat(1000))));
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    });
    await using gateway = await gatewayOf([a], { limits: { bytes: 200_000 } });
    const response = await ask(gateway, 'p', { stream: true });
    await expect(response.text()).rejects.toThrow();
    await until(() => a.aborted === 1 && gateway.openRequests === 0, 'the backend is told to stop');
  });

  it('a silent stream is cut after the silence that is allowed', async () => {
    await using a = await TestBackend.open((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(event('one'));
    });
    await using gateway = await gatewayOf([a], { limits: { idleMs: 50 } });
    const response = await ask(gateway, 'p', { stream: true });
    await expect(response.text()).rejects.toThrow();
    await until(() => gateway.counts.brokenAnswers === 1, 'the answer counts as broken');
  });

  it('a backend that never answers costs one wait, and another answers', async () => {
    await using silent = await TestBackend.open(() => {});
    await using well = await TestBackend.open(echo);
    await using gateway = await gatewayOf([silent, well], { limits: { headMs: 1000 } });
    await allAnswered(gateway, 4);
  });

  it('a client that leaves stops its backend, and no other client', async () => {
    await using a = await TestBackend.open((request, response, body) => {
      if (body.includes('stay')) return void setTimeout(() => echo(request, response, body), 100);
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(event('one'));
    });
    await using gateway = await gatewayOf([a]);
    const stays = ask(gateway, 'stay');
    const leaving = new AbortController();
    const response = await ask(gateway, 'go', { stream: true }, {}, leaving.signal);
    leaving.abort();
    await expect(response.text()).rejects.toThrow();
    await until(() => a.aborted === 1, 'the backend is told to stop');
    expect(await textOf(await stays)).toBe('echo stay');
    await until(() => gateway.openRequests === 0, 'nothing is open');
    expect(gateway.counts.clientsLeft).toBe(1);
  });

  it('a client that leaves before the first byte stops its backend', async () => {
    await using a = await TestBackend.open(() => {});
    await using gateway = await gatewayOf([a]);
    const leaving = new AbortController();
    const asked = ask(gateway, 'go', {}, {}, leaving.signal);
    await until(() => a.seen.length === 1, 'the backend was asked');
    leaving.abort();
    await expect(asked).rejects.toThrow();
    await until(() => a.aborted === 1 && gateway.openRequests === 0, 'the backend is told to stop');
    expect(gateway.counts).toMatchObject({ clientsLeft: 1, retries: 0, failed: 0 });
  });

  it('a client that takes nothing is left, and its backend stops', async () => {
    await using a = await TestBackend.open((_, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const more = (): void => {
        while (!response.destroyed && response.write(event('x'.repeat(10_000))));
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    });
    await using gateway = await gatewayOf([a], { limits: { clientMs: 100 } });
    const response = await ask(gateway, 'p', { stream: true });
    // the body is never read: buffers fill, and then nothing moves
    await until(() => a.aborted === 1 && gateway.openRequests === 0, 'the slow client is left');
    expect(gateway.counts.clientsLeft).toBe(1);
    await response.body?.cancel().catch(() => {});
  });
});

describe('metrics that cannot be true', () => {
  const lies: readonly (readonly [string, string])[] = [
    ['a share above 1', wellMetrics.replace('} 0.25', '} 7')],
    ['a queue below 0', wellMetrics.replace('} 2', '} -2')],
    ['a queue that must be a number', wellMetrics.replace('} 2', '} NaN')],
    ['a queue without end', wellMetrics.replace('} 2', '} +Inf')],
    ['more hits than lookups', wellMetrics.replace('} 80', '} 800')],
    ['no metrics at all', '<html></html>'],
    ['nothing', ''],
  ];
  it.each(lies)(
    '%s: the report before stays and grows old, and the backend goes on',
    async (_what, metrics) => {
      await using a = await TestBackend.open(echo);
      await using gateway = await gatewayOf([a]);
      const [backend] = gateway.pool.backends;
      await until(() => backend.report?.queueDepth === 2, 'a good report');
      a.metrics = metrics;
      await until(() => backend.counts.lies > 2, 'the lie is seen');
      expect(backend.report).toMatchObject({ queueDepth: 2, usedBlocks: [100], freeBlocks: [300] });
      expect(backend.isUp).toBe(true);
      await allAnswered(gateway, 2);
    },
  );

  it('metrics without end are cut, and the backend serves: they are no sign of health', async () => {
    await using a = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a]);
    a.metrics = (response) => {
      const more = (): void => {
        while (!response.destroyed && response.write('x'.repeat(65_536)));
        if (!response.destroyed) response.once('drain', more);
      };
      more();
    };
    const [backend] = gateway.pool.backends;
    await until(() => backend.lastError.includes('is longer than'), 'they are cut');
    const before = backend.reportedMs;
    await allAnswered(gateway, 2);
    expect(backend.isUp).toBe(true);
    a.metrics = wellMetrics;
    await until(() => backend.reportedMs > before, 'a good report');
  });

  it('a backend without metrics is served by what the gateway sees', async () => {
    await using a = await TestBackend.open(streamedEcho);
    a.metrics = (response) => {
      response.writeHead(404);
      response.end();
    };
    await using gateway = await gatewayOf([a]);
    await (await ask(gateway, 'p', { stream: true })).text();
    await until(() => (gateway.pool.backends[0].report?.recentTtftUs ?? 0) > 0, 'a report of its own');
  });

  it('counters that go back are a new process with an empty cache', async () => {
    await using a = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a]);
    const [backend] = gateway.pool.backends;
    expect(backend.instance).toBe(0);
    a.metrics = wellMetrics.replace('} 160', '} 16').replace('} 80', '} 8');
    await until(() => backend.instance === 1, 'another instance');
    await allAnswered(gateway, 2);
  });

  it.each([
    ['what it told before', false, 0],
    ['but what it has told since', true, 1],
  ])('a new process has nothing of %s', async (_what, hasTold, known) => {
    await using a = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a]);
    const [backend] = gateway.pool.backends;
    const stored: KVEvent = {
      type: 'stored',
      hashes: ['1'],
      parent: null,
      tokenIds: Array.from({ length: gateway.cutter.blockTokens }, (_, i) => i),
      blockTokens: gateway.cutter.blockTokens,
      medium: 'GPU',
      group: null,
      layers: null,
      loraName: null,
      salt: null,
      extraKeys: null,
    };
    gateway.pool.news(backend, [stored]);
    const polled = backend.reportedMs;
    await until(() => backend.reportedMs > polled, 'a poll');
    expect(backend.book?.all(0)).toHaveLength(1);
    // the new process answers the polls from here on, and may have told of its cache before the first one
    const restarted = wellMetrics.replace('} 160', '} 16').replace('} 80', '} 8');
    let answered: (() => void) | undefined;
    a.metrics = (response) => {
      answered = () => void response.end(restarted);
    };
    await until(() => answered !== undefined, 'the poll');
    if (hasTold) {
      gateway.pool.news(backend, [{ type: 'cleared', reason: 'restart', medium: null }, stored]);
    }
    a.metrics = restarted;
    answered?.();
    await until(() => backend.instance === 1, 'another instance');
    expect(backend.book?.all(1) ?? []).toHaveLength(known);
  });
});

describe('drain', () => {
  it('a drained backend finishes what it has and gets nothing new', async () => {
    let finish: (() => void) | undefined;
    await using a = await TestBackend.open((_, response) => {
      finish = () => response.end(answer('late'));
    });
    await using b = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a, b]);
    const late = ask(gateway, 'late');
    await until(() => a.seen.length === 1, 'it was asked');
    const order = async (what: string, key: string): Promise<Response> =>
      fetch(`${gateway.operatorUrl}/gateway/backends/b0/${what}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}` },
      });
    expect((await order('drain', 'wrong')).status).toBe(401);
    expect((await order('drain', 'admin')).status).toBe(200);
    await allAnswered(gateway, 6);
    expect(a.seen.length).toBe(1);
    finish?.();
    expect(await textOf(await late)).toBe('late');
    expect((await order('resume', 'admin')).status).toBe(200);
    a.handler = echo;
    await allAnswered(gateway, 6);
    expect(a.seen.length).toBeGreaterThan(1);
  });

  it('a gateway that closes finishes what is under way', async () => {
    await using a = await TestBackend.open((request, response, body) => {
      setTimeout(() => echo(request, response, body), 50);
    });
    const gateway = await gatewayOf([a], { limits: { graceMs: 60_000 } });
    const asked = ask(gateway, 'p', {}, { connection: 'close' });
    await until(() => a.seen.length === 1, 'it was asked');
    await gateway.close();
    expect(await textOf(await asked)).toBe('echo p');
    await expect(ask(gateway, 'late')).rejects.toThrow();
  });
});
