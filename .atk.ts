import fs from 'node:fs';
import { dashboard, framesOfLog } from './src/dashboard/index.ts';
import { readPrefix } from './src/explain/index.ts';
import { CachePicture } from './src/gateway/events/index.ts';
import { readControlFile, readTenants } from './src/gateway/index.ts';
import { fitHandoffs } from './src/handoff/index.ts';
import { reportPage } from './src/report/index.ts';

const evil = '</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028';
const t = async (name: string, f: () => unknown) => {
  const t0 = Date.now();
  try {
    const r = await f();
    console.log(
      name,
      'ok',
      String(typeof r === 'object' ? JSON.stringify(r) : r).slice(0, 150),
      Date.now() - t0,
      'ms',
    );
  } catch (e: any) {
    console.log(name, e?.isTierKVError ? 'TKV' : 'RAW', String(e).slice(0, 160), Date.now() - t0, 'ms');
  }
};
await t('report', async () => {
  const page = await reportPage({
    title: evil,
    question: evil,
    answer: evil,
    verdict: 'good',
    figures: [],
    sections: [{ kind: 'text', title: evil, text: evil, lines: [evil], paragraphs: [evil] }],
    origin: { command: evil, version: evil },
  } as any);
  return page.includes('</script><script>alert(1)') || page.includes('<img src=x') ? 'INJECTED' : 'escaped';
});
await t('prefix deep', () => readPrefix('{"tokens":' + '['.repeat(300000) + ']'.repeat(300000) + '}', 'x'));
await t('prefix huge', () => readPrefix('{"tokens":[' + '1,'.repeat(3_000_000) + '1]}', 'x'));
await t('prefix token 2^53', () =>
  readPrefix(
    '{"tokens":[9007199254740993],"tenant":"a","model":"m","secretKey":"' +
      '00'.repeat(16) +
      '","layout":{"layers":1,"kvHeads":1,"headDim":8,"dtype":"f16","blockTokens":1}}',
    'x',
  ),
);
await t('prefix token 2^33', () =>
  readPrefix(
    '{"tokens":[8589934592],"tenant":"a","model":"m","secretKey":"' +
      '00'.repeat(16) +
      '","layout":{"layers":1,"kvHeads":1,"headDim":8,"dtype":"f16","blockTokens":1}}',
    'x',
  ),
);
await t('frames bom', () => framesOfLog(['\ufeff{}'], 'x.log'));
await t('frames deep', () => framesOfLog(['['.repeat(300000)], 'x.log'));
await t('frames null', () => framesOfLog(['null', 'null'], 'x.log'));
fs.writeFileSync('/tmp/ten', '{"a":'.repeat(100000) + '1' + '}'.repeat(100000));
await t('tenants deep', () => readTenants('/tmp/ten'));
fs.writeFileSync('/tmp/ten', '\ufeffkey-0123456789abcdef: tenant\n');
await t('tenants bom', () => [...readTenants('/tmp/ten')]);
fs.writeFileSync('/tmp/ten', '');
await t('tenants empty', () => [...readTenants('/tmp/ten')]);
fs.writeFileSync('/tmp/ctl', 'control: ' + '['.repeat(50000));
await t('control deep', () => readControlFile('/tmp/ctl'));
fs.writeFileSync('/tmp/ctl', '');
await t('control empty', () => readControlFile('/tmp/ctl'));
fs.writeFileSync(
  '/tmp/ctl',
  'a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n',
);
await t('control bomb', () => readControlFile('/tmp/ctl'));
await t('fit handoffs zero', () =>
  fitHandoffs([{ ms: 0, outcome: 'done', taken: 0, bytes: 0, flowMs: 0 } as any]),
);
await t('fit handoffs inf', () =>
  fitHandoffs(
    [1, 2, 3].map(() => ({ ms: 1, outcome: 'received', taken: 1, bytes: Infinity, flowMs: 1 }) as any),
  ),
);
process.exit(0);
