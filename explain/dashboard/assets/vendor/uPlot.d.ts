/** The part of uPlot that these pages use. */
export default class uPlot {
  constructor(options: any, data: any, parent: HTMLElement);
  static sync(key: string): any;
  static paths: Record<string, any>;
  data: any[];
  cursor: { idx: number | null; left: number; top: number };
  scales: Record<string, { min: number; max: number }>;
  bbox: { left: number; top: number; width: number; height: number };
  ctx: CanvasRenderingContext2D;
  over: HTMLElement;
  root: HTMLElement;
  setData(data: any, reset?: boolean): void;
  setSize(size: { width: number; height: number }): void;
  setScale(key: string, range: { min: number; max: number }): void;
  setCursor(at: { left: number; top: number }, fire?: boolean): void;
  valToPos(value: number, scale: string, canvas?: boolean): number;
  redraw(paths?: boolean): void;
  destroy(): void;
}
