export type Child = VNode | string | number | bigint | boolean | null | undefined | Child[] | { readonly value: unknown };
export interface VNode { type: unknown; props: Record<string, any>; key: unknown }
export function h(type: any, props?: any, ...children: Child[]): VNode;
export function render(node: Child, parent: Element): void;
export const Fragment: any;
export class Component { props: any; state: any; setState(state: any): void; render(): Child; }
