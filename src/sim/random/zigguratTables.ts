/**
 * Tables of the ziggurat method (Marsaglia and Tsang, 2000) for the normal (128 strips) and the exponential
 * (256 strips) distribution, little-endian in base64: thresholds as unsigned 32-bit integers, widths and
 * heights as 32-bit floats, the precision of which is part of the value stream. The values are Copyright 2009
 * The Go Authors, BSD-3-Clause (data/licences/GO-BSD-3-Clause.txt).
 */

import { decodeBase64 } from './seedTable.ts';

const KN =
  'EiKtdgAAAABTGw9gpkfkbKJGW3IdBWB16yFJd70lmnjDRZB5Xc5Lep9i33qmglZ7xqi4eyLnCnznzFB8W+yMfNYswXzS/u58C34X' +
  'fYOIO31szlt9ZN14fYYok31XDqt9MN3AfYjW1H2FMed96hz4faPAB376PhZ+h7Ujfv09MH7C7jt+d9tGfl0VUX6zq1p+96tjfiwi' +
  'bH4GGXR+GJp7fvqtgn5jXIl+S6yPfvujlX4kSZt+76Cgfg2wpX7Deqp+8wSvfipSs36lZbd+WUK7fv3qvn4KYsJ+xKnFfkHEyH5l' +
  's8t+7XjOfnEW0X5ijdN+Et/VfrQM2H5cF9p+BQDcfo7H3X6/bt9+R/bgfr5e4n6pqON+c9Tkfnbi5X710uZ+IKbnfhBc6H7N9Oh+' +
  'R3DpflnO6X7KDup+RzHqfmg16n6rGup+ceDpfgKG6X6ICul+CG3ofmqs535px+Z+nLzlfmeK5H78LuN+V6jhfi/03376D95+2fjb' +
  'fpSr2X6NJNd+rl/UflxY0X5fCc5+y2zKfuJ7xn7uLsJ+Gn29fjVcuH51wLJ+IJysfiffpX6fdp5+FkyWfrpEjX4zQIN+KBd4fjOZ' +
  'a34ail1+7Z1NfnpzO34vjCZ+9T8Ofl2q8X1yjM99Hhqmffugcn2X4DB9q7TZfBoPYHzcC6l7diFyeuVk1nc=';

const WN =
  'NKPtMKRtCy9Jyjkvf2RaL7tydC+3SYUvcwaPL2vMly/31Z8vYEqnL39Fri/Z27QvCx27L0MVwS81zsYvw0/ML2mg0S+TxdYv1MPb' +
  'Lxaf4C+1WuUvoPnpL2Z+7i9I6/IvR0L3LyyF+y+Rtf8vdOoBMD/yAzDC8gUwiewHMBLgCTDUzQswOrYNMKqZDzCAeBEwFFMTMLgp' +
  'FTC4/BYwXcwYMOyYGjCkYhwwwykeMIXuHzAgsSEwzHEjMLswJTAf7iYwKKooMAZlKjDkHiww8dctMFWQLzA9SDEw0f8yMDu3NDCi' +
  'bjYwLyY4MAreOTBbljswSE89MPoIPzCYw0AwSn9CMDk8RDCO+kUwcbpHMA18STCNP0swHAVNMOfMTjAcl1Aw6mNSMIIzVDAWBlYw' +
  '2ttXMAS1WTDLkVswanJdMB5XXzAnQGEwxi1jMEIgZTDmF2cw/RRpMNsXazDVIG0wSjBvMJpGcTAtZHMwdYl1MOe2dzAF7XkwWCx8' +
  'MHZ1fjB/ZIAw0ZOBMA/JgjCgBIQw90aFMI+QhjDy4YcwuTuJMIueijAmC4wwXIKNMBoFjzBvlJAwjDGSMNHdkzDVmpUwcGqXMMxO' +
  'mTB6SpswjmCdMMKUnzCu66EwDGukMCsapzCQAqow9zCtMAC3sDAWrrQw7zy5MPaivjCfU8UwBkfOMOJT3DA=';

const FN =
  'AACAP3iudj85sG8/Or1pP5JsZD/bjF8/FgJbP4a6Vj8MqlI/8MdOP6YNSz8edkc/U/1DPwOgQD99Wz0/gi06PysUNz/WDTQ/GBkx' +
  'P7c0Lj+dXys/1JgoP4TfJT/nMiM/T5IgPxz9HT+9chs/sfIYP318Fj+1DxQ/86sRP9lQDz8S/gw/TLMKPz5wCD+hNAY/NgAEP8DS' +
  'AT8NWP8+pxf7Puzj9j59vPI+AqHuPiiR6j6gjOY+IJPiPmCk3j4ewNo+HObWPhsW0z7lT88+QpPLPv7fxz7pNcQ+1JTAPpL8vD74' +
  'bLk+3uW1Ph5nsj6S8K4+FoKrPoobqD7MvKQ+v2WhPkQWnj5Bzpo+mI2XPjJUlD71IZE+y/aNPpzSij5UtYc+3p6EPiePgT46DH0+' +
  'Wwd3PpEPcT68JGs+wEZlPn91Xz7fsFk+yPhTPiJNTj7XrUg+1RpDPgeUPT5eGTg+yqoyPj5ILT6t8Sc+DaciPlVoHT5/NRg+hQ4T' +
  'PmTzDT4b5Ag+quADPibS/T23+vM9FjvqPVaT4D2PA9c934vNPWssxD1f5bo967axPUyhqD3EpJ89ocGWPTv4jT34SIU9mmh5PXt1' +
  'aD3GuVc92jZHPU/uNj3+4SY9FhQXPSqHBz2pfPA8vXrSPP0RtTx3Tpg8QoB4PF/6QTy2TQ08WNS1O/L0Ljs=';

const KE =
  'OaGQ4gAAAAC83uqbcax3w5C53dS4P4nefOio5Grx3+ir3vLr6KZJ7v1OIPCO25vxu1jU8ksQ2vN4bbj0iq139T3oHfaEt6/2c6Uw' +
  '91F2o/e2Wwr4nRhn+E8bu/hikAf5ynBN+X2MjfmKksj5Wxf/+ZaZMfr4hWD6YjqM+k4ItfrINtv6EAT/+uqmIPu0T0D7USle++lZ' +
  'evuMA5X7ukSu+9g4xvuS+Nz7MJry+98xB/zt0Rr8Aost/E1sP/ysg1D80d1g/GKGcPwQiH/8tOyN/GK9m/x8Aqn8w8O1/GQIwvwK' +
  '18384zXZ/LAq5PzOuu78O+v4/KDAAv1ZPwz9e2sV/dZIHv3/2ib9UiUv/fcqN/3l7j7953NG/Z68Tf2Fy1T98qJb/RtFYv0VtGj9' +
  '2vFu/UcAdf0g4Xr9EpaA/bQghv2Fgov99byQ/V7Rlf0LwZr9No2f/Qg3pP2ev6j9Biit/UFxsf1GnLX9/am5/Uabvf32cMH92CvF' +
  '/azMyP0tVMz9C8PP/e8Z0/16Wdb9RYLZ/eWU3P3mkd/9znni/R9N5f1SDOj93rfq/TRQ7f2+1e/940jy/Qaq9P2E+fb9tjf5/fRk' +
  '+/2Ngf390I3//QiKAf56dgP+bFMF/hwhB/7J3wj+q48K/vswDP7sww3+sUgP/na/EP5pKBL+tIMT/nzRFP7nERb+FkUX/iprGP4+' +
  'hBn+cJAa/taPG/6Jghz+m2gd/iBCHv4mDx/+vM8f/u2DIP7DKyH+Rcch/nhWIv5f2SL++08j/kq6I/5JGCT+8mkk/jyvJP4e6CT+' +
  'ixQl/nQ0Jf7HRyX+cE4l/lpIJf5qNSX+hhUl/o/oJP5kriT+4WYk/t8RJP40ryP+tD4j/izAIv5rMyL+OJgh/ljuIP6MNSD+km0f' +
  '/iGWHv7wrh3+rLcc/gKwG/6Ylxr+DW4Z/v0yGP7+5Rb+nYYV/mQUFP7TjhL+ZfUQ/oxHD/6xhA3+NqwL/nO9Cf61twf+QJoF/kxk' +
  'A/4EFQH+iKv+/ekm/P0phvn9O8j2/QHs8/1K8PD90dPt/T2V6v0eM+f96avj/fv93/2RJ9z9zSbY/aj50/38nc/9dhHL/ZhRxv2z' +
  'W8H94iy8/QbCtv2+F7H9Yyqr/f31pP1Adp79eqaX/ZKBkP3yAYn9giGB/Y7ZeP27InD97fRm/TJHXf2cD1P9K0NI/ZrVPP02uTD9' +
  'pN4j/Z40Fv2jpwf9myH4/FuJ5/wgwtX826rC/F4drvxO7Zf81OZ//PPMZfxiV0n8yC8q/BnuB/zBE+L7GgW4+3gAifulEVT7BQAY' +
  '+4I00/p2koP6Mjsm+hwtt/mioTD5I/CJ+NJ3tfcMZZz28DAV9TwOy/Jdse/uz27a5g==';

const WE =
  'ZScLMezEgi2StdYtrZkMLjcXKS6IhEIuj8ZZLsZmby6C34Eu2YaLLhXAlC5InJ0uriimLsVvri4IerYub06+LsvyxS4DbM0uRr7U' +
  'Li/t2y7f++IuEu3pLjTD8C5mgPcukyb+LrdbAi9CmgUvnM8IL2f8Cy83IQ8vkz4SL/dUFS/VZBgvl24bL59yHi9GcSEv42okL8Nf' +
  'Jy8xUCovcjwtL8YkMC9rCTMvm+o1L4zIOC9xozsvfHs+L9tQQS+5I0QvQ/RGL57CSS/yjkwvZFlPLxYiUi8r6VQvwq5XL/xyWi/2' +
  'NV0vzfdfL524Yi+BeGUvlDdoL/D1ai+rs20v4HBwL6Qtcy8P6nUvN6Z4LzFiey8THn4v+WyAL/DKgS/5KIMvHoeEL2jlhS/hQ4cv' +
  'kqKIL4MBii+/YIsvTcCMLzcgji+FgI8vP+GQL25Cki8apJMvTAaVLwtpli9hzJcvVDCZL+2Umi81+psvMmCdL+7Gni9wLqAvv5ah' +
  'L+X/oi/oaaQv0dSlL6hApy90ragvPhuqLw6Kqy/r+awv32quL/Dcry8nULEvjcSyLyk6tC8EsbUvJim3L5miuC9jHbovj5m7LyQX' +
  'vS8rlr4vrhbAL7aYwS9LHMMvdqHEL0Ioxi+4sMcv4DrJL8bGyi9yVMwv7+PNL0d1zy+ECNEvsp3SL9o01C8HztUvRWnXL58G2S8g' +
  'ptov1EfcL8fr3S8Fkt8vmjrhL5Tl4i//kuQv6ELmL1z15y9qqukvH2LrL4sc7S+62e4vvpnwL6Rc8i99IvQvWev1L0i39y9bhvkv' +
  'pVj7LzYu/S8gB/8vvHEAMKdhATBdUwIw5kYDME48BDCgMwUw5SwGMCsoBzB7JQgw4yQJMG8mCjAsKgswJzAMMG04DTANQw4wFVAP' +
  'MJVfEDCbcREwN4YSMHudEzB3txQwPtQVMODzFjBzFhgwCDwZMLZkGjCQkBswrb8cMCTyHTAMKB8wf2EgMJaeITBs3yIwHSQkMMVs' +
  'JTCEuSYweAooMMRfKTCIuSow6hcsMBB7LTAg4y4wRVAwMKnCMTB7OjMw6rc0MCk7NjBuxDcw7lM5MOfpOjCWhjwwPCo+MB/VPzCJ' +
  'h0EwyEFDMC4ERTAUz0Yw16JIMNp/SjCIZkwwUldOMLJSUDAqWVIwRmtUMJyJVjDOtFgwi+1aMI80XTCnil8wsvBhMKJnZDB/8GYw' +
  'a4xpMKM8bDCFAm8wk99xMHnVdDAT5ncwdRN7MPJffjAW54AwjLCCMA6OhDCMgYYwQI2IMMOzijAe+Iww5V2PMF7pkTCtn5QwHIeX' +
  'MHGnmjB2Cp4wu7yhML7OpTDCVqow13OvMDtTtTCHOrww/5zEMOBOzzDzHN4wyU72MA==';

const FE =
  'AACAPy8qcD8zhWY/BChfP3gIWT/VtVM/ufROP46hSj8cpUY/RO9CP1F0Pz91Kzw/2w05PxoWNj/TPzM/bocwP+vpLT/EZCs/0fUo' +
  'PzabJj9YUyQ/zRwiP1n2Hz/i3h0/bdUbPxrZGT8f6Rc/xgQWP2krFD9xXBI/VpcQP5nbDj/GKA0/c34LPz7cCT/KQQg/xK4GP9wi' +
  'BT/KnQM/Rx8CPxanAD/waf4+bJH7PjfE+D7qAfY+KkrzPpyc8D7s+O0+zF7rPu/N6D4PRuY+58bjPjdQ4T7B4d4+S3vcPp0c2j6C' +
  'xdc+x3XVPjst0z6x69A++7DOPvB8zD5lT8o+NCjIPjgHxj5M7MM+TtfBPhvIvz6Vvr0+nLq7PhK8uT7awrc+2c61PvTfsz4S9rE+' +
  'GRGwPvEwrj6DVaw+uX6qPnysqD643qY+WRWlPklQoz53j6E+0NKfPkIanj66ZZw+KbWaPn4ImT6pX5c+mrqVPkMZlD6Ue5I+gOGQ' +
  'PvhKjz7vt40+WCiMPiecij5OE4k+w42HPngLhj5ijIQ+eBCDPqyXgT71IYA+kl59Pjt/ej7QpXc+QNJ0PncEcj5iPG8+8XlsPhG9' +
  'aT6yBWc+wlNkPjOnYT7z/14+9F1cPibBWT56KVc+4pZUPlAJUj63gE8+B/1MPjV+Sj4zBEg+9Y5FPm4eQz6TskA+Vks+Pq7oOz6O' +
  'ijk+6zA3PrvbND7zijI+iD4wPnD2LT6isis+E3MpPrs3Jz6PACU+hs0iPpieID68cx4+6UwcPhcqGj49Cxg+VPAVPlTZEz40xhE+' +
  '7bYPPnmrDT7Pows+6Z8JPr+fBz5MowU+h6oDPmy1AT7lh/89K6z7PZ3X9z0wCvQ92EPwPYmE7D04zOg92xrlPWhw4T3TzN09EzDa' +
  'PR6a1j3qCtM9b4LPPaIAzD18hcg99BDFPQGjwT2cO749vNq6PVqAtz1vLLQ9896wPd+XrT0uV6o92BynPdfooz0lu6A9vZOdPZly' +
  'mj20V5c9CUOUPZM0kT1NLI49NCqLPUQuiD15OIU9z0iCPYa+fj2l93g99TxzPXKObT0Y7Gc941ViPdHLXD3eTVc9CtxRPVR2TD27' +
  'HEc9Qc9BPeaNPD2sWDc9li8yPakSLT3oASg9Wf0iPQIFHj3sGBk9HjkUPaNlDz2Fngo90OMFPZM1AT22J/k8dP3vPIPs5jwL9d08' +
  'NxfVPDhTzDxDqcM8jxm7PFyksjztSao8jgqiPJHmmTxP3pE8K/KJPJAigjzv33Q8ybVlPNPHVjxTF0g8t6U5PJh0KzzGhR08T9sP' +
  'PJF3AjyQuuo7Tx/RO/okuDu+1J876zmIO5zFYjtIxDY7XaMMO6tdyTpYkH064hjuOQ==';

export const NORMAL_THRESHOLD: Uint32Array = new Uint32Array(decodeBase64(KN).buffer);
export const NORMAL_WIDTH: Float32Array = new Float32Array(decodeBase64(WN).buffer);
export const NORMAL_HEIGHT: Float32Array = new Float32Array(decodeBase64(FN).buffer);
export const EXPONENTIAL_THRESHOLD: Uint32Array = new Uint32Array(decodeBase64(KE).buffer);
export const EXPONENTIAL_WIDTH: Float32Array = new Float32Array(decodeBase64(WE).buffer);
export const EXPONENTIAL_HEIGHT: Float32Array = new Float32Array(decodeBase64(FE).buffer);
